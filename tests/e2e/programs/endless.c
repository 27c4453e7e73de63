// A kernel that does not end. The driver has to report that its channel is gone.
#include "cl.h"

int main(void)
{
	uint32_t zero = 0;
	cl_open();
	cl_kernel k = cl_build(
		"kernel void endless(global volatile uint *flag) {"
		"	while (*flag == 0)"
		"		;"
		"}", "endless");
	cl_mem flag = cl_buffer(sizeof zero, &zero);
	CHECK(clSetKernelArg(k, 0, sizeof flag, &flag));
	cl_run(k, 1, (size_t[]){64}, (size_t[]){32});
	cl_read(flag, sizeof zero, &zero);
	printf("endless: ended\n");
}
