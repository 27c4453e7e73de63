// Sums of groups of numbers, through shared memory with barriers.
#include "cl.h"

enum { groups = 8, each = 128 };

int main(void)
{
	int32_t in[groups * each], out[groups], want[groups];
	for (int i = 0; i < groups * each; i++)
		in[i] = i * 2654435761u;
	for (int g = 0; g < groups; g++) {
		uint32_t sum = 0;
		for (int i = 0; i < each; i++)
			sum += in[g * each + i];
		want[g] = sum;
	}
	cl_open();
	cl_kernel k = cl_build(
		"kernel void reduce(global int *out, global const int *in, local int *part) {"
		"	int i = get_local_id(0);"
		"	part[i] = in[get_global_id(0)];"
		"	barrier(CLK_LOCAL_MEM_FENCE);"
		"	for (int n = get_local_size(0) / 2; n > 0; n /= 2) {"
		"		if (i < n)"
		"			part[i] += part[i + n];"
		"		barrier(CLK_LOCAL_MEM_FENCE);"
		"	}"
		"	if (i == 0)"
		"		out[get_group_id(0)] = part[0];"
		"}", "reduce");
	cl_mem ins = cl_buffer(sizeof in, in), outs = cl_buffer(sizeof out, NULL);
	CHECK(clSetKernelArg(k, 0, sizeof outs, &outs));
	CHECK(clSetKernelArg(k, 1, sizeof ins, &ins));
	CHECK(clSetKernelArg(k, 2, each * sizeof(int), NULL));
	cl_run(k, 1, (size_t[]){groups * each}, (size_t[]){each});
	cl_read(outs, sizeof out, out);
	cl_same("reduce", out, want, sizeof out);
}
