// A matrix as the product of a lower and an upper triangle, in place and by tiles: the tile on the
// diagonal, those beside and below it, then all that remain.
#include "cl.h"

enum { tile = 16 };

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 48, tile);
	size_t cells = (size_t)n * n;
	float *got = malloc(sizeof(float) * cells);
	double *want = malloc(sizeof(double) * cells);
	for (int y = 0; y < n; y++)
		for (int x = 0; x < n; x++) // the diagonal outweighs the rest of its row
			want[y * n + x] = got[y * n + x] = x == y ? 2.0f * n : (cl_random() % 1000 + 500) / 1000.0f;
	for (int k = 0; k < n; k++)
		for (int y = k + 1; y < n; y++) {
			want[y * n + k] /= want[k * n + k];
			for (int x = k + 1; x < n; x++)
				want[y * n + x] -= want[y * n + k] * want[k * n + x];
		}

	cl_open();
	cl_program p = cl_compile(
		"kernel void corner(global float *m, int n, int at) {"
		"	local float t[16][16];"
		"	int x = get_local_id(0);"
		"	m += at * n + at;"
		"	for (int y = 0; y < 16; y++) t[y][x] = m[y * n + x];"
		"	for (int k = 0; k < 15; k++) {"
		"		barrier(CLK_LOCAL_MEM_FENCE);"
		"		if (x > k) t[x][k] /= t[k][k];"
		"		barrier(CLK_LOCAL_MEM_FENCE);"
		"		if (x > k) for (int i = k + 1; i < 16; i++) t[x][i] -= t[x][k] * t[k][i];"
		"	}"
		"	barrier(CLK_LOCAL_MEM_FENCE);"
		"	for (int y = 0; y < 16; y++) m[y * n + x] = t[y][x];"
		"}"
		"kernel void edges(global float *m, int n, int at) {"
		"	local float d[16][16], t[2][16][17];"
		"	int me = get_local_id(0), x = me % 16, below = me / 16, next = at + 16 + get_group_id(0) * 16;"
		"	global float *from = below ? m + next * n + at : m + at * n + next;"
		"	for (int y = 0; y < 16; y++) {"
		"		if (!below) d[y][x] = m[(at + y) * n + at + x];"
		"		t[below][y][x] = from[y * n + x];"
		"	}"
		"	barrier(CLK_LOCAL_MEM_FENCE);"
		"	if (below) {"
		"		for (int k = 0; k < 16; k++) {"
		"			float v = t[1][x][k];"
		"			for (int i = 0; i < k; i++) v -= t[1][x][i] * d[i][k];"
		"			t[1][x][k] = v / d[k][k];"
		"		}"
		"	} else {"
		"		for (int k = 1; k < 16; k++) {"
		"			float v = t[0][k][x];"
		"			for (int i = 0; i < k; i++) v -= d[k][i] * t[0][i][x];"
		"			t[0][k][x] = v;"
		"		}"
		"	}"
		"	barrier(CLK_LOCAL_MEM_FENCE);"
		"	for (int y = 0; y < 16; y++) from[y * n + x] = t[below][y][x];"
		"}"
		"kernel void inner(global float *m, int n, int at) {"
		"	local float a[16][16], b[16][16];"
		"	int x = get_local_id(0), y = get_local_id(1), nx = at + 16 + get_group_id(0) * 16, ny = at + 16 + get_group_id(1) * 16;"
		"	a[y][x] = m[(ny + y) * n + at + x];"
		"	b[y][x] = m[(at + y) * n + nx + x];"
		"	barrier(CLK_LOCAL_MEM_FENCE);"
		"	float sum = 0;"
		"	for (int k = 0; k < 16; k++) sum += a[y][k] * b[k][x];"
		"	m[(ny + y) * n + nx + x] -= sum;"
		"}");
	cl_kernel corner = cl_kernel_of(p, "corner"), edges = cl_kernel_of(p, "edges"), inner = cl_kernel_of(p, "inner");
	cl_mem m = cl_buffer(sizeof(float) * cells, got);
	while (cl_round()) {
		for (int at = 0; at < n; at += tile) {
			size_t left = (n - at) / tile - 1;
			for (int i = 0; i < 3; i++) {
				cl_kernel k = (cl_kernel[]){corner, edges, inner}[i];
				ARG(k, 0, m);
				ARG(k, 1, n);
				ARG(k, 2, at);
			}
			cl_run(corner, 1, (size_t[]){tile}, (size_t[]){tile});
			if (left == 0)
				break;
			cl_run(edges, 1, (size_t[]){left * 2 * tile}, (size_t[]){2 * tile});
			cl_run(inner, 2, (size_t[]){left * tile, left * tile}, (size_t[]){tile, tile});
		}
	}
	cl_read(m, sizeof(float) * cells, got);
	double off = cl_near("lud", got, want, cells, 1e-2, 16);
	cl_right("lud", "%d x %d within %.1f of 16 ulps", n, n, off);
}
