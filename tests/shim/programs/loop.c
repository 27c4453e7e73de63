// Collatz steps: an integer loop whose lanes leave at different times.
#include "cl.h"

int main(int argc, char **argv)
{
	int n = cl_size(argc, argv, 1, 256, 32); // below 113383 no number leaves 32 bits
	uint32_t *out = malloc(sizeof *out * n), *want = calloc(n, sizeof *want);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t v = i + 1; v != 1; v = v & 1 ? 3 * v + 1 : v >> 1)
			want[i]++;
	cl_open();
	cl_kernel k = cl_build(
		"kernel void loop(global uint *out) {"
		"	uint i = get_global_id(0), steps = 0;"
		"	for (uint v = i + 1; v != 1; v = v & 1 ? 3 * v + 1 : v >> 1)"
		"		steps++;"
		"	out[i] = steps;"
		"}", "loop");
	cl_mem outs = cl_buffer(sizeof *out * n, NULL);
	ARG(k, 0, outs);
	while (cl_round())
		cl_run(k, 1, (size_t[]){n}, (size_t[]){32});
	cl_read(outs, sizeof *out * n, out);
	cl_equal("loop", out, want, sizeof *out * n);
	cl_right("loop", "steps of %d numbers equal", n);
}
