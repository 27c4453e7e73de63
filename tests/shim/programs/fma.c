// A loop of multiplications with additions that round once: each needs the one before it.
#include "cl.h"

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 256, 64), steps = cl_size(argc, argv, 2, 64, 1);
	float *got = malloc(sizeof(float) * n), *want = malloc(sizeof(float) * n), a = 0.9921875f, b = 0.3f;
	for (int i = 0; i < n; i++) {
		want[i] = i;
		for (int s = 0; s < steps; s++)
			want[i] = (double)want[i] * a + b; // a has 7 bits: the product and the sum are exact
	}
	cl_open();
	cl_kernel k = cl_build(
		"kernel void steps(global float *out, float a, float b, int steps) {"
		"	float v = get_global_id(0);"
		"	for (int s = 0; s < steps; s++) v = fma(v, a, b);"
		"	out[get_global_id(0)] = v;"
		"}", "steps");
	cl_mem outs = cl_buffer(sizeof(float) * n, NULL);
	ARG(k, 0, outs);
	ARG(k, 1, a);
	ARG(k, 2, b);
	ARG(k, 3, steps);
	while (cl_round())
		cl_run(k, 1, (size_t[]){n}, (size_t[]){64});
	cl_read(outs, sizeof(float) * n, got);
	cl_equal("fma", got, want, sizeof(float) * n);
	cl_right("fma", "%d numbers after %d steps equal", n, steps);
}
