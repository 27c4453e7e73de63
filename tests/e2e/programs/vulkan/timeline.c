// Fills, copies and timeline semaphores of Vulkan: random words go to the device's memory, over a part of
// what was filled there, and back. Every word is checked. With the argument "noop" the GPU gets no commands, so
// that the check must fail.
#include "gpu.h"

enum { words = 1 << 18, bytes = 4 * words, part = words / 4, pattern = 0x5eed1234 };

int main(int argc, char **argv)
{
	int noop = argc > 1 && !strcmp(argv[1], "noop");
	VkPhysicalDeviceVulkan12Features on = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .timelineSemaphore = VK_TRUE};
	start(VK_API_VERSION_1_2, &on);

	uint32_t *in, *out;
	VkBuffer source = buffer(bytes, &in), card = buffer(bytes, NULL), result = buffer(bytes, &out);
	uint32_t random = 1;
	for (int i = 0; i < words; i++) {
		random = random * 1664525 + 1013904223;
		in[i] = random;
		out[i] = ~(i >= part && i < 3 * part ? random : pattern);
	}

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
	printf("timeline: %s: %d of %d words wrong\n", gpu_is.deviceName, wrong, words);
	return wrong != 0;
}
