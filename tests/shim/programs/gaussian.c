// Linear equations by elimination: for each column the factors of the rows below, then those rows. The
// host substitutes back.
#include "cl.h"

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 24, 1), wide = n + 1; // the last column is the right side
	size_t cells = (size_t)n * wide;
	float *got = malloc(sizeof(float) * cells);
	double *want = malloc(sizeof(double) * cells);
	for (int y = 0; y < n; y++)
		for (int x = 0; x < wide; x++)
			want[y * wide + x] = got[y * wide + x] = x == y ? 2.0f * n : (cl_random() % 1000 + 500) / 1000.0f;
	for (int k = 0; k < n - 1; k++)
		for (int y = k + 1; y < n; y++) {
			double f = want[y * wide + k] / want[k * wide + k];
			for (int x = k; x < wide; x++)
				want[y * wide + x] = x == k ? 0 : want[y * wide + x] - f * want[k * wide + x];
		}

	cl_open();
	cl_program p = cl_compile(
		"kernel void factors(global const float *m, global float *f, int n, int k) {"
		"	int y = get_global_id(0);"
		"	if (y > k && y < n) f[y] = m[y * (n + 1) + k] / m[k * (n + 1) + k];"
		"}"
		"kernel void rows(global float *m, global const float *f, int n, int k) {"
		"	int x = get_global_id(0), y = get_global_id(1);"
		"	if (x < k || x > n || y <= k || y >= n) return;"
		"	int at = y * (n + 1) + x;"
		"	m[at] = x == k ? 0 : m[at] - f[y] * m[k * (n + 1) + x];"
		"}");
	cl_kernel factors = cl_kernel_of(p, "factors"), rows = cl_kernel_of(p, "rows");
	cl_mem m = cl_buffer(sizeof(float) * cells, got), fs = cl_buffer(sizeof(float) * n, NULL);
	size_t all = (n + 1 + 15) / 16 * 16;
	while (cl_round()) {
		for (int k = 0; k < n - 1; k++) {
			for (int i = 0; i < 2; i++) {
				cl_kernel kernel = i ? rows : factors;
				ARG(kernel, 0, m);
				ARG(kernel, 1, fs);
				ARG(kernel, 2, n);
				ARG(kernel, 3, k);
			}
			cl_run(factors, 1, (size_t[]){all}, (size_t[]){16});
			cl_run(rows, 2, (size_t[]){all, all}, (size_t[]){16, 4});
		}
	}
	cl_read(m, sizeof(float) * cells, got);
	double off = cl_near("gaussian", got, want, cells, 1e-2, 32), sum = 0;
	double *x = calloc(n, sizeof(double));
	for (int y = n - 1; y >= 0; y--) {
		x[y] = got[y * wide + n];
		for (int i = y + 1; i < n; i++)
			x[y] -= got[y * wide + i] * x[i];
		x[y] /= got[y * wide + y];
		sum += x[y];
	}
	cl_right("gaussian", "%d unknowns with the sum %.5f, rows within %.1f of 32 ulps", n, sum, off);
}
