// Does for a Mesa that is installed what mesa-hopper.patch does in its source: programs run on Hopper.
//
//	cc -shared -fPIC -O2 -o nvk-hopper.so nvk-hopper.c
//	LD_PRELOAD=$PWD/nvk-hopper.so PROGRAM
//
// NVK (seen with 26.1.6 and 26.2.6) leaves two fields of a launch zero, and the card drops it. And it encodes the targets of
// branches as Ampere has them, so that a program that branches ends with "illegal instruction encoding".
//
// Both pass through objects of 64 KiB that the CPU has mapped. Before the kernel gets a submission (DRM_NOUVEAU_EXEC)
// they are looked through: for launches, which are QMDs of version 4.0 at multiples of 256 bytes (clcbc0qmd.h), and in
// memory of the system for branches, which are on their way to the card. An object may be the card's memory, where each
// read costs, so this is no way to measure.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { most = 256, object_size = 64 << 10, launch_align = 256, word = 4 };
enum { drm = 'd' << 8, gem_new = 0x80, exec = 0x52, gart = 1 << 2, grid_cta = 2 << 23, group_id = 0x1f << 16 };

// gem is struct drm_nouveau_gem_info, with which struct drm_nouveau_gem_new begins.
struct gem { uint32_t handle, domain; uint64_t size, offset, map_handle; };

static struct object {
	char *at;
	int system;                                   // it is memory of the system
	uint64_t written[object_size / word]; // the branches here that were changed already
} objects[most];
static uint64_t system_handles[16 * most];
static unsigned known;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void complete_launch(uint32_t *q)
{
	if ((q[18] & 0xff) != 0x40 || q[0] != 0)
		return;
	uint32_t threads = q[36] & 0xffff;
	if (q[17] >> 24 & 1 && q[32] != 0 && threads > 0 && threads <= 1024 && (q[38] | q[39]) != 0)
		*q = grid_cta | group_id;
}

// The two forms of a branch: the bits that say so.
static const struct { uint64_t low_mask, low, high_mask; } branches[] = {
	{0x3ffff0fff, 0x947, 0xc0000000f87c0000},      // BRA
	{0x3f0ff0fff, 0x100000547, 0xc0000000f07c0000}, // BRA.U: with a uniform predicate at 24 to 28
};

// turn_branch moves the low 8 bits of a branch's distance, which is in words: from bits 34 to 82 to bits 16 to 24.
static void turn_branch(char *in, uint64_t *written)
{
	uint64_t low, high;
	memcpy(&low, in, 8);
	memcpy(&high, in + 8, 8);
	uint64_t sign = high & 0x3ffff;
	int is = 0;
	for (int i = 0; i < 2; i++)
		is |= (low & branches[i].low_mask) == branches[i].low && (high & branches[i].high_mask) == 0;
	if (!is || low == *written || (sign != 0 && sign != 0x3ffff))
		return;
	uint64_t distance = low >> 34 | sign << 30;
	*written = (low & 0x3ffffffff) | (distance & 0xff) << 16 | (distance >> 8 | sign << 40) << 34;
	memcpy(in, written, 8);
}

static void look_through(struct object *o)
{
	for (int i = 0; i < object_size; i += launch_align)
		complete_launch((uint32_t *)(o->at + i));
	for (int i = 0; o->system && i <= object_size - 16; i += word) // code follows what was uploaded before it
		turn_branch(o->at + i, &o->written[i / word]);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	va_start(list, request);
	void *arg = va_arg(list, void *);
	va_end(list);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < most && (request & 0xffff) == (drm | exec); i++)
		if (objects[i].at)
			look_through(&objects[i]);
	pthread_mutex_unlock(&lock);
	int r = syscall(SYS_ioctl, fd, request, arg);
	struct gem *made = arg;
	if ((request & 0xffff) == (drm | gem_new) && r == 0 && made->domain & gart) {
		pthread_mutex_lock(&lock);
		system_handles[known++ % (16 * most)] = made->map_handle;
		pthread_mutex_unlock(&lock);
	}
	return r;
}

void *mmap(void *addr, size_t size, int rights, int flags, int fd, off_t offset)
{
	void *at = (void *)syscall(SYS_mmap, addr, size, rights, flags, fd, offset);
	if (fd < 0 || offset == 0 || size != object_size || at == MAP_FAILED || !(rights & PROT_WRITE))
		return at;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < most; i++)
		if (!objects[i].at) {
			objects[i].at = at;
			objects[i].system = 0;
			for (int h = 0; h < 16 * most; h++)
				objects[i].system |= system_handles[h] == (uint64_t)offset;
			break;
		}
	pthread_mutex_unlock(&lock);
	return at;
}

void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

int munmap(void *at, size_t size)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < most; i++)
		if (objects[i].at == at)
			objects[i].at = NULL;
	pthread_mutex_unlock(&lock);
	return syscall(SYS_munmap, at, size);
}
