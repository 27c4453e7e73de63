// A loop of products, sums, shifts and differences of bits: each needs the one before it.
#include "cl.h"

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 256, 64), steps = cl_size(argc, argv, 2, 64, 1);
	uint32_t *got = malloc(sizeof *got * n), *want = malloc(sizeof *want * n);
	for (uint32_t i = 0; i < n; i++) {
		want[i] = i;
		for (int s = 0; s < steps; s++)
			want[i] = (want[i] * 1664525 + i) ^ want[i] >> 7;
	}
	cl_open();
	cl_kernel k = cl_build(
		"kernel void steps(global uint *out, int steps) {"
		"	uint i = get_global_id(0), v = i;"
		"	for (int s = 0; s < steps; s++) v = (v * 1664525 + i) ^ v >> 7;"
		"	out[i] = v;"
		"}", "steps");
	cl_mem outs = cl_buffer(sizeof *got * n, NULL);
	ARG(k, 0, outs);
	ARG(k, 1, steps);
	while (cl_round())
		cl_run(k, 1, (size_t[]){n}, (size_t[]){64});
	cl_read(outs, sizeof *got * n, got);
	cl_equal("integers", got, want, sizeof *got * n);
	cl_right("integers", "%d numbers after %d steps equal", n, steps);
}
