// y = a * x + y, with values for which every sum is exact.
#include "cl.h"

enum { n = 1000 };

int main(void)
{
	float x[n], y[n], want[n], a = 3;
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
	cl_mem xs = cl_buffer(sizeof x, x), ys = cl_buffer(sizeof y, y);
	int count = n;
	CHECK(clSetKernelArg(k, 0, sizeof ys, &ys));
	CHECK(clSetKernelArg(k, 1, sizeof xs, &xs));
	CHECK(clSetKernelArg(k, 2, sizeof a, &a));
	CHECK(clSetKernelArg(k, 3, sizeof count, &count));
	cl_run(k, 1, (size_t[]){1024}, (size_t[]){64});
	cl_read(ys, sizeof y, y);
	cl_same("saxpy", y, want, sizeof y);
}
