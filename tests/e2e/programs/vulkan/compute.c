// Runs 1,048,576 threads of a compute program, with a loop whose length differs from thread to thread, shared memory
// and a barrier, and checks each word. With the argument "noop" the GPU runs nothing, so that the check must fail.
#include "gpu.h"
#include "compute.h"

enum { threads = 1 << 20, group = 256 };

// steps is how many steps of Collatz's lead from a number to 1, up to 200.
static uint32_t steps(uint32_t n)
{
	uint32_t s = 0;
	for (; n != 1 && s < 200; s++)
		n = n & 1 ? 3 * n + 1 : n / 2;
	return s;
}

int main(int argc, char **argv)
{
	int noop = argc > 1 && !strcmp(argv[1], "noop");
	VkPhysicalDeviceVulkan12Features none = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
	start(VK_API_VERSION_1_2, &none);
	cpu_memory |= VK_MEMORY_PROPERTY_HOST_CACHED_BIT; // of the system: reads of the card's memory take long
	uint32_t *out;
	VkBuffer card = buffer(4 * threads, NULL), result = buffer(4 * threads, &out);
	memset(out, 0xff, 4 * threads);

	VkDescriptorSetLayoutBinding slot = {.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, .descriptorCount = 1, .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
	VkDescriptorSetLayoutCreateInfo set = {VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, .bindingCount = 1, .pBindings = &slot};
	VkDescriptorSetLayout sets;
	MUST(vkCreateDescriptorSetLayout(dev, &set, NULL, &sets));
	VkPipelineLayoutCreateInfo laid = {VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .setLayoutCount = 1, .pSetLayouts = &sets};
	VkPipelineLayout layout;
	MUST(vkCreatePipelineLayout(dev, &laid, NULL, &layout));
	VkShaderModuleCreateInfo code = {VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = sizeof compute_shader, .pCode = compute_shader};
	VkComputePipelineCreateInfo info = {VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO, .layout = layout,
		.stage = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, .stage = VK_SHADER_STAGE_COMPUTE_BIT, .pName = "main"}};
	MUST(vkCreateShaderModule(dev, &code, NULL, &info.stage.module));
	VkPipeline pipeline;
	MUST(vkCreateComputePipelines(dev, VK_NULL_HANDLE, 1, &info, NULL, &pipeline));

	VkDescriptorPoolSize one = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1};
	VkDescriptorPoolCreateInfo pooled = {VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, .maxSets = 1, .poolSizeCount = 1, .pPoolSizes = &one};
	VkDescriptorPool descriptors;
	MUST(vkCreateDescriptorPool(dev, &pooled, NULL, &descriptors));
	VkDescriptorSetAllocateInfo from = {VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, .descriptorPool = descriptors, .descriptorSetCount = 1, .pSetLayouts = &sets};
	VkDescriptorSet bound;
	MUST(vkAllocateDescriptorSets(dev, &from, &bound));
	VkDescriptorBufferInfo whole = {card, 0, VK_WHOLE_SIZE};
	VkWriteDescriptorSet write = {VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET, .dstSet = bound, .descriptorCount = 1,
		.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, .pBufferInfo = &whole};
	vkUpdateDescriptorSets(dev, 1, &write, 0, NULL);

	VkCommandBufferAllocateInfo first = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = pool, .commandBufferCount = 1};
	VkCommandBuffer c;
	MUST(vkAllocateCommandBuffers(dev, &first, &c));
	VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
	MUST(vkBeginCommandBuffer(c, &begin));
	VkMemoryBarrier order = {VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_HOST_READ_BIT};
	VkBufferCopy all = {0, 0, 4 * threads};
	if (!noop) {
		vkCmdBindPipeline(c, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
		vkCmdBindDescriptorSets(c, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &bound, 0, NULL);
		vkCmdDispatch(c, threads / group, 1, 1);
		vkCmdPipelineBarrier(c, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 1, &order, 0, NULL, 0, NULL);
		vkCmdCopyBuffer(c, card, result, 1, &all);
		vkCmdPipelineBarrier(c, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &order, 0, NULL, 0, NULL);
	}
	MUST(vkEndCommandBuffer(c));
	VkSubmitInfo work = {VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &c};
	VkFence done;
	VkFenceCreateInfo fence = {VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
	MUST(vkCreateFence(dev, &fence, NULL, &done));
	MUST(vkQueueSubmit(queue, 1, &work, done));
	MUST(vkWaitForFences(dev, 1, &done, VK_TRUE, 60000000000));

	int wrong = 0;
	for (uint32_t i = 0; i < threads; i++)
		wrong += out[i] != (steps(i + 1) << 16 | steps((i ^ (group - 1)) + 1));
	printf("compute: %s: %d of %d words wrong\n", gpu_is.deviceName, wrong, threads);
	return wrong != 0;
}
