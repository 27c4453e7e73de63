// Does for a Mesa that is installed what mesa-hopper-qmd.patch does in Mesa's source: compute programs run on Hopper.
//
//	cc -shared -fPIC -O2 -o hopper-qmd.so hopper-qmd.c
//	LD_PRELOAD=$PWD/hopper-qmd.so PROGRAM
//
// NVK describes a launch by a QMD, a structure of 384 bytes in objects of 64 KiB that the CPU has mapped. Before the
// kernel gets a submission (DRM_NOUVEAU_EXEC), each QMD of version 4.0 there whose first word is zero is given its type
// and group. It is known by its fields (clcbc0qmd.h), at multiples of 256 bytes: where the card reads QMDs. Such an
// object may be the card's memory: looking for QMDs costs a read of it for each 256 bytes, at each submission.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { most = 256, object = 64 << 10, aligned = 256, drm_nouveau_exec = 0x52, grid_cta = 2 << 23, group_id = 0x1f << 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t *volatile mapped[most];

static int is_qmd(const uint32_t *q)
{
	if ((q[18] & 0xff) != 0x40 || q[0] != 0)
		return 0;
	uint32_t threads = q[36] & 0xffff;
	return q[17] >> 24 & 1 && q[32] != 0 && threads > 0 && threads <= 1024 && (q[38] | q[39]) != 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	va_start(list, request);
	void *arg = va_arg(list, void *);
	va_end(list);
	if ((request & 0xffff) == ('d' << 8 | drm_nouveau_exec)) {
		pthread_mutex_lock(&lock);
		for (int i = 0; i < most; i++)
			for (uint32_t *q = mapped[i]; q && q < mapped[i] + object / 4; q += aligned / 4)
				if (is_qmd(q))
					*q = grid_cta | group_id;
		pthread_mutex_unlock(&lock);
	}
	return syscall(SYS_ioctl, fd, request, arg);
}

// replace puts one address in place of another.
static void replace(void *old, void *by)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < most; i++)
		if (mapped[i] == old) {
			mapped[i] = by;
			break;
		}
	pthread_mutex_unlock(&lock);
}

void *mmap(void *addr, size_t size, int rights, int flags, int fd, off_t offset)
{
	void *at = (void *)syscall(SYS_mmap, addr, size, rights, flags, fd, offset);
	if (fd >= 0 && offset != 0 && size == object && at != MAP_FAILED && rights & PROT_WRITE)
		replace(NULL, at);
	return at;
}

void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

int munmap(void *at, size_t size)
{
	if (size == object)
		replace(at, NULL);
	return syscall(SYS_munmap, at, size);
}
