// What the OpenCL programs share: one device, one kernel from source, buffers, and a check.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cl_context context;
static cl_command_queue queue;
static cl_device_id device;

#define CHECK(call) \
	do { \
		cl_int err_ = (call); \
		if (err_) { \
			fprintf(stderr, "%s: OpenCL error %d\n", #call, err_); \
			exit(1); \
		} \
	} while (0)

static inline void cl_open(void)
{
	cl_platform_id platform;
	cl_int err;
	CHECK(clGetPlatformIDs(1, &platform, NULL));
	CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
	CHECK(err);
	queue = clCreateCommandQueue(context, device, 0, &err);
	CHECK(err);
}

static inline cl_kernel cl_build(const char *source, const char *name)
{
	cl_int err;
	cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &err);
	CHECK(err);
	if (clBuildProgram(program, 1, &device, "", NULL, NULL)) {
		char log[4096] = "";
		clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
		fprintf(stderr, "%s\n", log);
		exit(1);
	}
	cl_kernel k = clCreateKernel(program, name, &err);
	CHECK(err);
	return k;
}

static inline cl_mem cl_buffer(size_t size, const void *data)
{
	cl_int err;
	cl_mem m = clCreateBuffer(context, CL_MEM_READ_WRITE | (data ? CL_MEM_COPY_HOST_PTR : 0), size, (void *)data, &err);
	CHECK(err);
	return m;
}

static inline void cl_run(cl_kernel k, cl_uint dims, const size_t *global, const size_t *local)
{
	CHECK(clEnqueueNDRangeKernel(queue, k, dims, NULL, global, local, 0, NULL, NULL));
}

static inline void cl_read(cl_mem m, size_t size, void *to)
{
	CHECK(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, size, to, 0, NULL, NULL));
}

// cl_same ends the program unless both have the same bytes.
static inline void cl_same(const char *what, const void *got, const void *want, size_t size)
{
	const unsigned char *g = got, *w = want;
	for (size_t i = 0; i < size; i++)
		if (g[i] != w[i]) {
			fprintf(stderr, "%s: byte %zu of %zu is %#x, want %#x\n", what, i, size, g[i], w[i]);
			exit(2);
		}
	printf("%s: %zu bytes as they should be\n", what, size);
}
