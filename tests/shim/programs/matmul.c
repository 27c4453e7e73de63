// The product of two matrices: a group computes a tile, and has tiles of both in local memory.
#include "cl.h"

enum { tile = 16 };

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 48, tile);
	size_t cells = (size_t)n * n;
	float *a = malloc(sizeof(float) * cells), *b = malloc(sizeof(float) * cells), *got = malloc(sizeof(float) * cells);
	double *want = calloc(cells, sizeof(double));
	for (size_t i = 0; i < cells; i++) {
		a[i] = cl_random() % 1000 / 1000.0f;
		b[i] = cl_random() % 1000 / 1000.0f;
	}
	for (int y = 0; y < n; y++)
		for (int k = 0; k < n; k++)
			for (int x = 0; x < n; x++)
				want[y * n + x] += (double)a[y * n + k] * b[k * n + x];

	cl_open();
	cl_kernel k = cl_build(
		"kernel void product(global const float *a, global const float *b, global float *c, int n) {"
		"	local float s[16][16], t[16][16];"
		"	int x = get_global_id(0), y = get_global_id(1), i = get_local_id(0), j = get_local_id(1);"
		"	float sum = 0;"
		"	for (int at = 0; at < n; at += 16) {"
		"		s[j][i] = a[y * n + at + i];"
		"		t[j][i] = b[(at + j) * n + x];"
		"		barrier(CLK_LOCAL_MEM_FENCE);"
		"		for (int k = 0; k < 16; k++) sum += s[j][k] * t[k][i];"
		"		barrier(CLK_LOCAL_MEM_FENCE);"
		"	}"
		"	c[y * n + x] = sum;"
		"}", "product");
	cl_mem as = cl_buffer(sizeof(float) * cells, a), bs = cl_buffer(sizeof(float) * cells, b), cs = cl_buffer(sizeof(float) * cells, NULL);
	ARG(k, 0, as);
	ARG(k, 1, bs);
	ARG(k, 2, cs);
	ARG(k, 3, n);
	while (cl_round())
		cl_run(k, 2, (size_t[]){n, n}, (size_t[]){tile, tile});
	cl_read(cs, sizeof(float) * cells, got);
	double off = cl_near("matmul", got, want, cells, 1, 32);
	cl_right("matmul", "%d x %d within %.1f of 32 ulps", n, n, off);
}
