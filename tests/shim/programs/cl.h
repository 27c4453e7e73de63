// What the OpenCL programs share: one device, kernels from source, buffers, checks, and the time of
// the device's part.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static inline cl_program cl_compile(const char *source)
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
	return program;
}

static inline cl_kernel cl_kernel_of(cl_program program, const char *name)
{
	cl_int err;
	cl_kernel k = clCreateKernel(program, name, &err);
	CHECK(err);
	return k;
}

static inline cl_kernel cl_build(const char *source, const char *name)
{
	return cl_kernel_of(cl_compile(source), name);
}

// ARG sets an argument to a variable.
#define ARG(k, i, v) CHECK(clSetKernelArg(k, i, sizeof(v), &(v)))

// What buffers were made with.
static struct {
	cl_mem buffer;
	size_t size;
	void *data;
} cl_made[8];
static int cl_buffers;

static inline cl_mem cl_buffer(size_t size, const void *data)
{
	cl_int err;
	cl_mem m = clCreateBuffer(context, CL_MEM_READ_WRITE | (data ? CL_MEM_COPY_HOST_PTR : 0), size, (void *)data, &err);
	CHECK(err);
	if (data && cl_buffers < 8) {
		cl_made[cl_buffers].buffer = m;
		cl_made[cl_buffers].size = size;
		cl_made[cl_buffers++].data = memcpy(malloc(size), data, size);
	}
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

static inline void cl_write(cl_mem m, size_t size, const void *from)
{
	CHECK(clEnqueueWriteBuffer(queue, m, CL_TRUE, 0, size, from, 0, NULL, NULL));
}

static double cl_took; // seconds, by the last round

// cl_worked is seconds of processors that this program has used, and its card's processes.
static inline double cl_worked(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static inline double cl_now(void)
{
	struct timespec t;
	CHECK(clFinish(queue));
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

// The time of a loop's body counts as the device's: while (cl_round()) { ... }. It runs once, or as often as
// CL_ROUNDS says, and prints each time then. Buffers have again what they were made with.
static inline int cl_round(void)
{
	static int round;
	static double began, worked;
	const char *rounds = getenv("CL_ROUNDS");
	if (round) {
		cl_took = cl_now() - began;
		if (rounds)
			printf("round %d: %.6f ms, %.6f ms of processors\n", round, cl_took * 1e3, (cl_worked() - worked) * 1e3);
	}
	if (round++ == (rounds ? atoi(rounds) : 1))
		return 0;
	for (int i = 0; round > 1 && i < cl_buffers; i++)
		cl_write(cl_made[i].buffer, cl_made[i].size, cl_made[i].data);
	CHECK(clFinish(queue));
	worked = cl_worked();
	began = cl_now();
	return 1;
}

// cl_right prints what was checked, and the time.
#define cl_right(program, ...) \
	do { \
		printf(program ": "); \
		printf(__VA_ARGS__); \
		printf(", %.3f ms on the device\n", cl_took * 1e3); \
	} while (0)

// cl_size reads a size from the command line.
static inline int cl_size(int argc, char **argv, int n, int usual, int multiple)
{
	int v = argc > n ? atoi(argv[n]) : usual;
	if (v <= 0 || v % multiple) {
		fprintf(stderr, "argument %d is %s: want a number, %d or a multiple of it\n", n, argv[n], multiple);
		exit(1);
	}
	return v;
}

// cl_random returns 31 bits that look random.
static inline uint32_t cl_random(void)
{
	static uint64_t state = 1;
	state = state * 6364136223846793005u + 1442695040888963407u;
	return state >> 33;
}

// cl_equal ends the program unless both have the same bytes.
static inline void cl_equal(const char *what, const void *got, const void *want, size_t size)
{
	const unsigned char *g = got, *w = want;
	for (size_t i = 0; i < size; i++)
		if (g[i] != w[i]) {
			fprintf(stderr, "%s: byte %zu of %zu is %#x, want %#x\n", what, i, size, g[i], w[i]);
			exit(2);
		}
}

// cl_near ends the program unless all numbers are within so many units in the last place, which are
// those of the wanted number or of the smallest that matters. It returns the largest distance.
static inline double cl_near(const char *what, const float *got, const double *want, size_t n, double smallest, double ulps)
{
	double worst = 0;
	for (size_t i = 0; i < n; i++) {
		double off = fabs(got[i] - want[i]) / ldexp(1, ilogb(fmax(fabs(want[i]), smallest)) - 23);
		if (!(off <= ulps)) {
			fprintf(stderr, "%s: number %zu of %zu is %.9g, want %.9g: %g ulps\n", what, i, n, got[i], want[i], off);
			exit(2);
		}
		worst = fmax(worst, off);
	}
	return worst;
}

// cl_same is cl_equal, and says so.
static inline void cl_same(const char *what, const void *got, const void *want, size_t size)
{
	cl_equal(what, got, want, size);
	printf("%s: %zu bytes as they should be\n", what, size);
}
