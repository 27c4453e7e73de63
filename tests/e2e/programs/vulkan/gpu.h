// What the programs share: a device of the first GPU, and memory.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

static void must(VkResult r, const char *what)
{
	if (r != VK_SUCCESS) {
		printf("%s: VkResult %d\n", what, r);
		exit(2);
	}
}
#define MUST(call) must(call, #call)

static VkPhysicalDevice gpu;
static VkPhysicalDeviceProperties gpu_is;
static VkDevice dev;
static VkQueue queue;
static VkCommandPool pool;

// start makes a device with these features.
static void start(uint32_t api, const void *features)
{
	VkApplicationInfo app = {VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = api};
	VkInstanceCreateInfo begin = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
	VkInstance instance;
	MUST(vkCreateInstance(&begin, NULL, &instance));
	uint32_t one = 1;
	VkResult r = vkEnumeratePhysicalDevices(instance, &one, &gpu);
	must(one ? (r == VK_INCOMPLETE ? VK_SUCCESS : r) : VK_ERROR_INITIALIZATION_FAILED, "a GPU");
	vkGetPhysicalDeviceProperties(gpu, &gpu_is);
	float priority = 1;
	VkDeviceQueueCreateInfo queues = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
	VkDeviceCreateInfo make = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = features, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queues};
	MUST(vkCreateDevice(gpu, &make, NULL, &dev));
	vkGetDeviceQueue(dev, 0, 0, &queue);
	VkCommandPoolCreateInfo pooled = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
	MUST(vkCreateCommandPool(dev, &pooled, NULL, &pool));
}

// memory allocates what needs asks for, with these properties.
static VkDeviceMemory memory(VkMemoryRequirements needs, VkMemoryPropertyFlags wanted)
{
	VkPhysicalDeviceMemoryProperties has;
	vkGetPhysicalDeviceMemoryProperties(gpu, &has);
	uint32_t type = 0;
	while (type < has.memoryTypeCount && (!(needs.memoryTypeBits >> type & 1) || (has.memoryTypes[type].propertyFlags & wanted) != wanted))
		type++;
	VkMemoryAllocateInfo size = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .allocationSize = needs.size, .memoryTypeIndex = type};
	VkDeviceMemory m;
	MUST(vkAllocateMemory(dev, &size, NULL, &m));
	return m;
}

// cpu_memory is what memory that the CPU sees must be.
static VkMemoryPropertyFlags cpu_memory = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;

// buffer makes a buffer for transfers and programs: of the card's memory, or of memory that the CPU sees at at.
static VkBuffer buffer(VkDeviceSize bytes, uint32_t **at)
{
	VkBufferCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = bytes,
		.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
	VkBuffer b;
	MUST(vkCreateBuffer(dev, &info, NULL, &b));
	VkMemoryRequirements needs;
	vkGetBufferMemoryRequirements(dev, b, &needs);
	VkDeviceMemory m = memory(needs, at ? cpu_memory : VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
	MUST(vkBindBufferMemory(dev, b, m, 0));
	if (at)
		MUST(vkMapMemory(dev, m, 0, VK_WHOLE_SIZE, 0, (void **)at));
	return b;
}
