// Kernels that the card stops: one that does not end, and one that writes where there is no memory.
// The argument is the name of one. The driver has to report that its channel is gone.
#include "cl.h"

int main(int argc, char **argv)
{
	uint32_t zero = 0;
	cl_open();
	cl_kernel k = cl_build(
		"kernel void endless(global volatile uint *a) {"
		"	while (*a == 0)"
		"		;"
		"}"
		"kernel void wild(global uint *a) {"
		"	a[0x40000000 + get_global_id(0)] = 1;"
		"}", argv[1]);
	cl_mem a = cl_buffer(sizeof zero, &zero);
	CHECK(clSetKernelArg(k, 0, sizeof a, &a));
	cl_run(k, 1, (size_t[]){64}, (size_t[]){32});
	cl_read(a, sizeof zero, &zero);
	printf("%s: ended\n", argv[1]);
}
