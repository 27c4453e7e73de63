// Draws a triangle off screen, copies the picture to memory, and compares every pixel with what the CPU computes.
// With the argument "picture" it also prints the rows, as "row Y X" and the colours from there on in hexadecimal
// digits. With "noop" the GPU draws nothing, so that the check must fail.
#include "gpu.h"
#include "triangle.h"

enum { side = 256, background = 0x40 };

// The corners in pixels. No centre of a pixel lies on an edge, so no rule for ties matters.
static const int corner[3][2] = {{128, 16}, {248, 224}, {24, 208}};

// edge is twice the area of a triangle, in quarters of a pixel: of corners a and b with the centre of a pixel.
static int edge(int a, int b, int x, int y)
{
	int dx = 2 * (corner[b][0] - corner[a][0]), dy = 2 * (corner[b][1] - corner[a][1]);
	return dx * (2 * y + 1 - 2 * corner[a][1]) - dy * (2 * x + 1 - 2 * corner[a][0]);
}

// matches compares a pixel with the weights of the corners, of which each has a colour of its own.
static int matches(uint32_t pixel, int x, int y, int *covered)
{
	int w[3] = {edge(1, 2, x, y), edge(2, 0, x, y), edge(0, 1, x, y)};
	*covered = w[0] > 0 && w[1] > 0 && w[2] > 0;
	for (int c = 0; c < 3; c++) {
		double want = *covered ? 255.0 * w[c] / (w[0] + w[1] + w[2]) : background, got = pixel >> 8 * c & 0xff;
		if (got - want > 1 || want - got > 1)
			return 0;
	}
	return pixel >> 24 == 0xff;
}

static VkShaderModule shader(const uint32_t *words, size_t bytes)
{
	VkShaderModuleCreateInfo info = {VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = bytes, .pCode = words};
	VkShaderModule m;
	MUST(vkCreateShaderModule(dev, &info, NULL, &m));
	return m;
}

static VkPipeline pipeline(VkFormat format)
{
	VkPipelineShaderStageCreateInfo stages[2] = {
		{VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, .stage = VK_SHADER_STAGE_VERTEX_BIT, .pName = "main",
			.module = shader(vertex_shader, sizeof vertex_shader)},
		{VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, .stage = VK_SHADER_STAGE_FRAGMENT_BIT, .pName = "main",
			.module = shader(fragment_shader, sizeof fragment_shader)},
	};
	VkPipelineVertexInputStateCreateInfo input = {VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO};
	VkPipelineInputAssemblyStateCreateInfo assembly = {VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO,
		.topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST};
	VkViewport port = {0, 0, side, side, 0, 1};
	VkRect2D all = {{0, 0}, {side, side}};
	VkPipelineViewportStateCreateInfo ports = {VK_STRUCTURE_TYPE_PIPELINE_VIEWPORT_STATE_CREATE_INFO, .viewportCount = 1,
		.pViewports = &port, .scissorCount = 1, .pScissors = &all};
	VkPipelineRasterizationStateCreateInfo raster = {VK_STRUCTURE_TYPE_PIPELINE_RASTERIZATION_STATE_CREATE_INFO, .lineWidth = 1};
	VkPipelineMultisampleStateCreateInfo samples = {VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO,
		.rasterizationSamples = VK_SAMPLE_COUNT_1_BIT};
	VkPipelineColorBlendAttachmentState write = {.colorWriteMask = 0xf};
	VkPipelineColorBlendStateCreateInfo blend = {VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO, .attachmentCount = 1, .pAttachments = &write};
	VkPipelineRenderingCreateInfo target = {VK_STRUCTURE_TYPE_PIPELINE_RENDERING_CREATE_INFO, .colorAttachmentCount = 1, .pColorAttachmentFormats = &format};
	VkPipelineLayoutCreateInfo nothing = {VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
	VkPipelineLayout layout;
	MUST(vkCreatePipelineLayout(dev, &nothing, NULL, &layout));
	VkGraphicsPipelineCreateInfo info = {VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO, .pNext = &target, .stageCount = 2, .pStages = stages,
		.pVertexInputState = &input, .pInputAssemblyState = &assembly, .pViewportState = &ports, .pRasterizationState = &raster,
		.pMultisampleState = &samples, .pColorBlendState = &blend, .layout = layout};
	VkPipeline p;
	MUST(vkCreateGraphicsPipelines(dev, VK_NULL_HANDLE, 1, &info, NULL, &p));
	return p;
}

static void barrier(VkCommandBuffer c, VkImage image, VkImageLayout from, VkImageLayout to)
{
	VkImageMemoryBarrier b = {VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
		.dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT, .oldLayout = from, .newLayout = to, .image = image,
		.srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED, .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
		.subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1}};
	vkCmdPipelineBarrier(c, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 0, NULL, 0, NULL, 1, &b);
}

int main(int argc, char **argv)
{
	int noop = argc > 1 && !strcmp(argv[1], "noop"), picture = argc > 1 && !strcmp(argv[1], "picture");
	VkPhysicalDeviceVulkan13Features on = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES, .dynamicRendering = VK_TRUE};
	start(VK_API_VERSION_1_3, &on);

	VkFormat format = VK_FORMAT_R8G8B8A8_UNORM;
	VkImageCreateInfo made = {VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO, .imageType = VK_IMAGE_TYPE_2D, .format = format, .extent = {side, side, 1},
		.mipLevels = 1, .arrayLayers = 1, .samples = VK_SAMPLE_COUNT_1_BIT,
		.usage = VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT};
	VkImage image;
	MUST(vkCreateImage(dev, &made, NULL, &image));
	VkMemoryRequirements needs;
	vkGetImageMemoryRequirements(dev, image, &needs);
	MUST(vkBindImageMemory(dev, image, memory(needs, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT), 0));
	VkImageViewCreateInfo seen = {VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO, .image = image, .viewType = VK_IMAGE_VIEW_TYPE_2D,
		.format = format, .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1}};
	VkImageView view;
	MUST(vkCreateImageView(dev, &seen, NULL, &view));
	uint32_t *out;
	VkBuffer result = buffer(4 * side * side, &out);
	memset(out, 0x55, 4 * side * side);

	VkCommandBufferAllocateInfo one = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = pool, .commandBufferCount = 1};
	VkCommandBuffer c;
	MUST(vkAllocateCommandBuffers(dev, &one, &c));
	VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
	MUST(vkBeginCommandBuffer(c, &begin));
	if (!noop) {
		float grey = background / 255.0f;
		VkRenderingAttachmentInfo target = {VK_STRUCTURE_TYPE_RENDERING_ATTACHMENT_INFO, .imageView = view,
			.imageLayout = VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL, .loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR,
			.storeOp = VK_ATTACHMENT_STORE_OP_STORE, .clearValue.color.float32 = {grey, grey, grey, 1}};
		VkRenderingInfo drawing = {VK_STRUCTURE_TYPE_RENDERING_INFO, .renderArea = {{0, 0}, {side, side}}, .layerCount = 1,
			.colorAttachmentCount = 1, .pColorAttachments = &target};
		barrier(c, image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL);
		vkCmdBeginRendering(c, &drawing);
		vkCmdBindPipeline(c, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline(format));
		vkCmdDraw(c, 3, 1, 0, 0);
		vkCmdEndRendering(c);
		barrier(c, image, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL);
		VkBufferImageCopy all = {.imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1}, .imageExtent = {side, side, 1}};
		vkCmdCopyImageToBuffer(c, image, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, result, 1, &all);
		VkMemoryBarrier seen_by_cpu = {VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT, .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
		vkCmdPipelineBarrier(c, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &seen_by_cpu, 0, NULL, 0, NULL);
	}
	MUST(vkEndCommandBuffer(c));
	VkFenceCreateInfo unsignaled = {VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
	VkFence done;
	MUST(vkCreateFence(dev, &unsignaled, NULL, &done));
	VkSubmitInfo work = {VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &c};
	MUST(vkQueueSubmit(queue, 1, &work, done));
	MUST(vkWaitForFences(dev, 1, &done, VK_TRUE, 60000000000));

	int wrong = 0, inside = 0;
	for (int y = 0; y < side; y++) {
		int begun = 0;
		for (int x = 0; x < side; x++) {
			int covered;
			uint32_t pixel = out[y * side + x];
			wrong += !matches(pixel, x, y, &covered);
			inside += covered;
			if (!picture || !covered)
				continue;
			if (!begun++)
				printf("row %d %d ", y, x);
			printf("%02x%02x%02x", pixel & 0xff, pixel >> 8 & 0xff, pixel >> 16 & 0xff);
		}
		if (begun)
			printf("\n");
	}
	printf("triangle: %s: %d of %d pixels wrong, %d in the triangle\n", gpu_is.deviceName, wrong, side * side, inside);
	return wrong != 0;
}
