// Runs Fourier transforms by VkFFT, single precision, and holds each to FFTW's in double precision. VkFFT writes its shaders
// as text for each size, and glslang compiles them here: sizes are few. As a control, each result must also be found wrong
// after one of its words has lost its sign.
#include "gpu.h"
#include <fftw3.h>
#include <math.h>
#include <time.h>
#pragma GCC optimize "O0" // else VkFFT's generator of shaders takes gcc a minute
#define VKFFT_BACKEND 0
#include <vkFFT.h>

enum { complex_to_complex, cosines };

// The kinds of shaders: powers of two in one and two passes, each radix, mixed ones, Rader's two ways, more dimensions. Bluestein's gives zeros
// on lavapipe, too.
static const struct { int kind, dimensions, size[3]; } transforms[] = {
	{complex_to_complex, 1, {2}}, {complex_to_complex, 1, {64}}, {complex_to_complex, 1, {4096}}, {complex_to_complex, 1, {16384}},
	{complex_to_complex, 1, {243}}, {complex_to_complex, 1, {625}}, {complex_to_complex, 1, {343}}, {complex_to_complex, 1, {1001}},
	{complex_to_complex, 1, {17}}, {complex_to_complex, 1, {97}}, {complex_to_complex, 1, {221}}, {complex_to_complex, 2, {17, 11}},
	{complex_to_complex, 2, {64, 48}}, {complex_to_complex, 3, {24, 20, 12}}, {cosines, 1, {240}},
};

static VkCommandBuffer commands;
static VkFence done;

// copy moves n bytes, after and before all else.
static void copy(VkBuffer from, VkBuffer to, VkDeviceSize n)
{
	VkMemoryBarrier order = {VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT | VK_ACCESS_HOST_READ_BIT};
	VkPipelineStageFlags stages = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, all = stages | VK_PIPELINE_STAGE_HOST_BIT;
	vkCmdPipelineBarrier(commands, stages, stages, 0, 1, &order, 0, NULL, 0, NULL);
	vkCmdCopyBuffer(commands, from, to, 1, &(VkBufferCopy){0, 0, n});
	vkCmdPipelineBarrier(commands, stages, all, 0, 1, &order, 0, NULL, 0, NULL);
}

// error is the distance of n numbers from what they should be, as a part of their length.
static double error(const float *is, const double *want, int n)
{
	double off = 0, length = 0;
	for (int i = 0; i < n; i++) {
		off += (is[i] - want[i]) * (is[i] - want[i]);
		length += want[i] * want[i];
	}
	return sqrt(off / length);
}

// transform makes one, and reports whether it is right.
static int transform(int kind, int dimensions, const int *size)
{
	int points = 1, fftw_size[3];
	for (int i = 0; i < dimensions; i++) {
		points *= size[i];
		fftw_size[dimensions - 1 - i] = size[i]; // FFTW's last one is VkFFT's first one
	}
	int n = kind == cosines ? points : 2 * points;
	uint64_t bytes = n * sizeof(float);
	float *data;
	VkBuffer card = buffer(bytes, NULL), cpu = buffer(bytes, (uint32_t **)&data);
	double *want = fftw_malloc(n * sizeof *want);
	fftw_plan plan = kind == cosines ? fftw_plan_r2r_1d(n, want, want, FFTW_REDFT10, FFTW_ESTIMATE) :
		fftw_plan_dft(dimensions, fftw_size, (fftw_complex *)want, (fftw_complex *)want, FFTW_FORWARD, FFTW_ESTIMATE);
	for (int i = 0; i < n; i++)
		want[i] = data[i] = rand() / (float)RAND_MAX * 2 - 1;
	fftw_execute(plan);

	struct timespec before, after;
	clock_gettime(CLOCK_MONOTONIC, &before);
	VkFFTConfiguration c = {.FFTdim = dimensions, .device = &dev, .queue = &queue, .fence = &done, .commandPool = &pool,
		.physicalDevice = &gpu, .isCompilerInitialized = 1, .makeForwardPlanOnly = 1, .performDCT = kind == cosines ? 2 : 0,
		.buffer = &card, .bufferSize = &bytes};
	for (int i = 0; i < dimensions; i++)
		c.size[i] = size[i];
	VkFFTApplication app = {0};
	VkFFTLaunchParams launch = {.commandBuffer = &commands};
	VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
	must(initializeVkFFT(&app, c), "initializeVkFFT");
	MUST(vkResetCommandPool(dev, pool, 0));
	MUST(vkBeginCommandBuffer(commands, &begin));
	copy(cpu, card, bytes);
	must(VkFFTAppend(&app, -1, &launch), "VkFFTAppend");
	copy(card, cpu, bytes);
	MUST(vkEndCommandBuffer(commands));
	VkSubmitInfo work = {VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
	MUST(vkQueueSubmit(queue, 1, &work, done));
	MUST(vkWaitForFences(dev, 1, &done, VK_TRUE, 60000000000));
	MUST(vkResetFences(dev, 1, &done));
	deleteVkFFT(&app);
	clock_gettime(CLOCK_MONOTONIC, &after);

	const double bound = 1e-6;
	double e = error(data, want, n);
	int largest = 0;
	for (int i = 0; i < n; i++)
		if (fabs(want[i]) > fabs(want[largest]))
			largest = i;
	data[largest] = -data[largest];
	int right = e < bound && error(data, want, n) >= bound;
	printf("vkfft: %s", kind == cosines ? "cosines " : "");
	for (int i = 0; i < dimensions; i++)
		printf("%s%d", i ? "x" : "", size[i]);
	printf(": error %.1e, %.1f s: %s\n", e, after.tv_sec - before.tv_sec + (after.tv_nsec - before.tv_nsec) / 1e9, right ? "right" : "WRONG");
	fflush(stdout);
	fftw_destroy_plan(plan);
	fftw_free(want);
	return right;
}

int main(void)
{
	VkPhysicalDeviceVulkan12Features none = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
	start(VK_API_VERSION_1_2, &none);
	cpu_memory |= VK_MEMORY_PROPERTY_HOST_CACHED_BIT; // of the system: reads of the card's memory take long
	VkCommandBufferAllocateInfo one = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = pool, .commandBufferCount = 1};
	VkFenceCreateInfo fence = {VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
	MUST(vkAllocateCommandBuffers(dev, &one, &commands));
	MUST(vkCreateFence(dev, &fence, NULL, &done));
	glslang_initialize_process();
	int all = sizeof transforms / sizeof *transforms, right = 0;
	for (int i = 0; i < all; i++)
		right += transform(transforms[i].kind, transforms[i].dimensions, transforms[i].size);
	printf("vkfft: %s: %d of %d transforms right\n", gpu_is.deviceName, right, all);
	return right != all;
}
