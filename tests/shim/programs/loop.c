// Collatz steps: an integer loop whose lanes leave at different times.
#include "cl.h"

enum { n = 256 };

int main(void)
{
	uint32_t out[n], want[n];
	for (uint32_t i = 0; i < n; i++) {
		want[i] = 0;
		for (uint32_t v = i + 1; v != 1; v = v & 1 ? 3 * v + 1 : v >> 1)
			want[i]++;
	}
	cl_open();
	cl_kernel k = cl_build(
		"kernel void loop(global uint *out) {"
		"	uint i = get_global_id(0), steps = 0;"
		"	for (uint v = i + 1; v != 1; v = v & 1 ? 3 * v + 1 : v >> 1)"
		"		steps++;"
		"	out[i] = steps;"
		"}", "loop");
	cl_mem outs = cl_buffer(sizeof out, NULL);
	CHECK(clSetKernelArg(k, 0, sizeof outs, &outs));
	cl_run(k, 1, (size_t[]){n}, (size_t[]){32});
	cl_read(outs, sizeof out, out);
	cl_same("loop", out, want, sizeof out);
}
