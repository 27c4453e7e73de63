// Fills, copies and timeline semaphores of Vulkan: random words go to the device's memory, over a part of
// what was filled there, and back. Every word is checked. With the argument "noop" the GPU gets no commands, so
// that the check must fail.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

enum { words = 1 << 18, bytes = 4 * words, part = words / 4, pattern = 0x5eed1234 };

static void must(VkResult r, const char *what)
{
	if (r != VK_SUCCESS) {
		printf("timeline: %s: VkResult %d\n", what, r);
		exit(2);
	}
}
#define MUST(call) must(call, #call)

static VkPhysicalDevice gpu;
static VkDevice dev;

// buffer makes a buffer in memory with these properties, and maps it if the CPU can see it.
static VkBuffer buffer(VkMemoryPropertyFlags wanted, uint32_t **at)
{
	VkBufferCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = bytes,
		.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
	VkBuffer b;
	MUST(vkCreateBuffer(dev, &info, NULL, &b));
	VkMemoryRequirements needs;
	vkGetBufferMemoryRequirements(dev, b, &needs);
	VkPhysicalDeviceMemoryProperties has;
	vkGetPhysicalDeviceMemoryProperties(gpu, &has);
	uint32_t type = 0;
	while (type < has.memoryTypeCount && (!(needs.memoryTypeBits >> type & 1) || (has.memoryTypes[type].propertyFlags & wanted) != wanted))
		type++;
	VkMemoryAllocateInfo size = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .allocationSize = needs.size, .memoryTypeIndex = type};
	VkDeviceMemory m;
	MUST(vkAllocateMemory(dev, &size, NULL, &m));
	MUST(vkBindBufferMemory(dev, b, m, 0));
	if (at)
		MUST(vkMapMemory(dev, m, 0, VK_WHOLE_SIZE, 0, (void **)at));
	return b;
}

int main(int argc, char **argv)
{
	int noop = argc > 1 && !strcmp(argv[1], "noop");
	VkApplicationInfo app = {VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2};
	VkInstanceCreateInfo start = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
	VkInstance instance;
	MUST(vkCreateInstance(&start, NULL, &instance));
	uint32_t one = 1;
	VkResult r = vkEnumeratePhysicalDevices(instance, &one, &gpu);
	must(one ? (r == VK_INCOMPLETE ? VK_SUCCESS : r) : VK_ERROR_INITIALIZATION_FAILED, "a GPU");
	VkPhysicalDeviceProperties is;
	vkGetPhysicalDeviceProperties(gpu, &is);
	float priority = 1;
	VkDeviceQueueCreateInfo queues = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
	VkPhysicalDeviceVulkan12Features on = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .timelineSemaphore = VK_TRUE};
	VkDeviceCreateInfo make = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &on, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queues};
	MUST(vkCreateDevice(gpu, &make, NULL, &dev));
	VkQueue queue;
	vkGetDeviceQueue(dev, 0, 0, &queue);

	uint32_t *in, *out;
	VkMemoryPropertyFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
	VkBuffer source = buffer(host, &in), card = buffer(VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, NULL), result = buffer(host, &out);
	uint32_t random = 1;
	for (int i = 0; i < words; i++) {
		random = random * 1664525 + 1013904223;
		in[i] = random;
		out[i] = ~(i >= part && i < 3 * part ? random : pattern);
	}

	VkCommandPoolCreateInfo pooled = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
	VkCommandPool pool;
	MUST(vkCreateCommandPool(dev, &pooled, NULL, &pool));
	VkCommandBufferAllocateInfo two = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = pool, .commandBufferCount = 2};
	VkCommandBuffer c[2];
	MUST(vkAllocateCommandBuffers(dev, &two, c));
	VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
	VkMemoryBarrier order = {VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_HOST_READ_BIT};
	VkBufferCopy middle = {4 * part, 4 * part, 8 * part}, all = {0, 0, bytes};
	for (int i = 0; i < 2; i++) {
		MUST(vkBeginCommandBuffer(c[i], &begin));
		if (!noop && i == 0) {
			vkCmdFillBuffer(c[i], card, 0, bytes, pattern);
			vkCmdPipelineBarrier(c[i], VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &order, 0, NULL, 0, NULL);
			vkCmdCopyBuffer(c[i], source, card, 1, &middle);
		} else if (!noop) {
			vkCmdCopyBuffer(c[i], card, result, 1, &all);
			vkCmdPipelineBarrier(c[i], VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &order, 0, NULL, 0, NULL);
		}
		MUST(vkEndCommandBuffer(c[i]));
	}

	// Both wait on the timeline: the first for the CPU, the second for the first.
	VkSemaphoreTypeCreateInfo timeline = {VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
	VkSemaphoreCreateInfo sem = {VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &timeline};
	VkSemaphore s;
	MUST(vkCreateSemaphore(dev, &sem, NULL, &s));
	VkPipelineStageFlags stage = VK_PIPELINE_STAGE_TRANSFER_BIT;
	for (uint64_t i = 0; i < 2; i++) {
		uint64_t from = i + 1, to = i + 2;
		VkTimelineSemaphoreSubmitInfo points = {VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO, .waitSemaphoreValueCount = 1,
			.pWaitSemaphoreValues = &from, .signalSemaphoreValueCount = 1, .pSignalSemaphoreValues = &to};
		VkSubmitInfo work = {VK_STRUCTURE_TYPE_SUBMIT_INFO, .pNext = &points, .waitSemaphoreCount = 1, .pWaitSemaphores = &s,
			.pWaitDstStageMask = &stage, .commandBufferCount = 1, .pCommandBuffers = &c[i], .signalSemaphoreCount = 1, .pSignalSemaphores = &s};
		MUST(vkQueueSubmit(queue, 1, &work, VK_NULL_HANDLE));
	}
	uint64_t value, last = 3;
	MUST(vkGetSemaphoreCounterValue(dev, s, &value));
	must(value ? VK_ERROR_UNKNOWN : VK_SUCCESS, "the GPU waits for the CPU");
	VkSemaphoreSignalInfo go = {VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = s, .value = 1};
	MUST(vkSignalSemaphore(dev, &go));
	VkSemaphoreWaitInfo wait = {VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, .semaphoreCount = 1, .pSemaphores = &s, .pValues = &last};
	MUST(vkWaitSemaphores(dev, &wait, 60000000000));

	int wrong = 0;
	for (int i = 0; i < words; i++)
		wrong += out[i] != (i >= part && i < 3 * part ? in[i] : pattern);
	printf("timeline: %s: %d of %d words wrong\n", is.deviceName, wrong, words);
	return wrong != 0;
}
