// y = a * x + y, with values for which every sum is exact.
#include "cl.h"

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 1000, 1); // up to 4194304 all is exact
	size_t size = sizeof(float) * n;
	float *x = malloc(size), *y = malloc(size), *want = malloc(size), a = 3;
	for (int i = 0; i < n; i++) {
		x[i] = i;
		y[i] = 2 * n - i;
		want[i] = a * x[i] + y[i];
	}
	cl_open();
	cl_kernel k = cl_build(
		"kernel void saxpy(global float *y, global const float *x, float a, int n) {"
		"	int i = get_global_id(0);"
		"	if (i < n)"
		"		y[i] = a * x[i] + y[i];"
		"}", "saxpy");
	cl_mem xs = cl_buffer(size, x), ys = cl_buffer(size, y);
	ARG(k, 0, ys);
	ARG(k, 1, xs);
	ARG(k, 2, a);
	ARG(k, 3, n);
	while (cl_round())
		cl_run(k, 1, (size_t[]){(size_t)(n + 63) / 64 * 64}, (size_t[]){64});
	cl_read(ys, size, y);
	cl_equal("saxpy", y, want, size);
	cl_right("saxpy", "%d sums equal", n);
}
