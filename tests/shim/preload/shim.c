// A library for LD_PRELOAD, in front of Mesa's own noop shim: it passes the nouveau requests
// of the program to a server, which owns a software card, and maps the server's memory where
// the program maps a buffer. What the server does not answer goes on to the noop shim.
//
// The server's socket is in UMBRA_SHIM. The messages are described in wire.go.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	message = 160 << 10, // a message's largest size
	drm = 'd',
	gem_close = 0x09,
	driver_first = 0x40,
	driver_end = 0xa0,
	gem_pushbuf = 0x81,
	processor_time = 0x9f, // no request of nouveau's
	broken = 70, // the exit status when the card or the server failed
};

// Buffers are mapped at these offsets of the device's file; files are not that long.
static const uint64_t map_base = 1ull << 44;

struct head {
	uint32_t request; // answer: 0, 1 (not answered), 2 (failed: the text follows) or minus an errno
	uint32_t size;
};

struct pushbuf {
	uint32_t channel, buffers;
	uint64_t buffer_list;
	uint32_t relocs, pushes;
	uint64_t reloc_list, push_list;
	uint32_t suffix[2];
	uint64_t available[2];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int server = -1, memory = -1;
static char answers; // the server answers each request
static char buffer[message];

static int (*next_ioctl)(int, unsigned long, ...);
static void *(*next_mmap)(void *, size_t, int, int, int, off_t);
static int (*next_setenv)(const char *, const char *, int);
static int (*next_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void find(void)
{
	next_ioctl = dlsym(RTLD_NEXT, "ioctl");
	next_mmap = dlsym(RTLD_NEXT, "mmap");
	next_setenv = dlsym(RTLD_NEXT, "setenv");
	next_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
}

static void fail(const char *what)
{
	fprintf(stderr, "umbra shim: %s\n", what);
	_exit(broken);
}

// connect_server takes the memory's descriptor out of the server's first message.
static void connect_server(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const char *path = getenv("UMBRA_SHIM");
	if (!path || strlen(path) >= sizeof to.sun_path)
		fail("UMBRA_SHIM does not name the server's socket");
	strcpy(to.sun_path, path);
	server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (server < 0 || connect(server, (struct sockaddr *)&to, sizeof to) < 0)
		fail("the server does not answer");
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec data = {buffer, sizeof buffer};
	struct msghdr hello = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control,
	};
	if (recvmsg(server, &hello, MSG_CMSG_CLOEXEC) < 0 || hello.msg_controllen < sizeof control)
		fail("the server sent no memory");
	answers = buffer[0];
	memcpy(&memory, CMSG_DATA(&control.head), sizeof memory);
}

// append adds bytes to a message and returns its new length.
static size_t append(size_t n, const void *p, size_t size)
{
	if (size > sizeof buffer - n)
		fail("a request is larger than a message");
	memcpy(buffer + n, p, size);
	return n + size;
}

// ask has the server carry out a request. It returns 1 if the server leaves it to others.
static int ask(unsigned long request, void *arg, size_t size)
{
	struct head h = {request, size};
	int submits = (request & 0xff) == gem_pushbuf, later = submits || (request & 0xff) == gem_close;
	struct pushbuf *p = arg;
	if (submits)
		p->available[0] = p->available[1] = 1 << 30; // of VRAM, and of the system's memory
	size_t n = append(append(0, &h, sizeof h), arg, size);
	if (submits) {
		n = append(n, (void *)(uintptr_t)p->buffer_list, p->buffers * (size_t)40);
		n = append(n, (void *)(uintptr_t)p->push_list, p->pushes * (size_t)24);
	}
	if (send(server, buffer, n, MSG_NOSIGNAL) < 0)
		fail("the server is gone");
	if (later && !answers)
		return 0; // a failure is the answer to a later one
	ssize_t got = recv(server, buffer, sizeof buffer - 1, 0);
	if (got < (ssize_t)sizeof h)
		fail("the server is gone");
	memcpy(&h, buffer, sizeof h);
	switch (h.request) {
	case 0:
		memcpy(arg, buffer + sizeof h, size < got - sizeof h ? size : got - sizeof h);
		return 0;
	case 1:
		return 1;
	case 2:
		buffer[got] = 0;
		fail(buffer + sizeof h);
	}
	errno = -(int32_t)h.request;
	return -1;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	va_start(list, request);
	void *arg = va_arg(list, void *);
	va_end(list);
	unsigned nr = request & 0xff;
	if ((request >> 8 & 0xff) == drm && (nr == gem_close || (nr >= driver_first && nr < driver_end))) {
		pthread_mutex_lock(&lock);
		if (server < 0)
			connect_server();
		int ret = ask(request, arg, request >> 16 & 0x3fff);
		pthread_mutex_unlock(&lock);
		if (ret <= 0)
			return ret;
	}
	return next_ioctl(fd, request, arg);
}

void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	if (!next_mmap) // before the constructor
		find();
	if (memory >= 0 && (uint64_t)offset >= map_base) {
		fd = memory;
		offset -= map_base;
	}
	return next_mmap(at, size, prot, flags, fd, offset);
}

void *mmap64(void *at, size_t size, int prot, int flags, int fd, off_t offset) __attribute__((alias("mmap")));

// The processor time of a program is that of its card, too.
int clock_gettime(clockid_t clock, struct timespec *t)
{
	if (!next_clock_gettime)
		find();
	int ret = next_clock_gettime(clock, t);
	if (ret || clock != CLOCK_PROCESS_CPUTIME_ID)
		return ret;
	uint64_t ns = 0;
	pthread_mutex_lock(&lock);
	if (server >= 0)
		ret = ask(processor_time, &ns, sizeof ns);
	pthread_mutex_unlock(&lock);
	ns += t->tv_nsec;
	t->tv_sec += ns / 1000000000;
	t->tv_nsec = ns % 1000000000;
	return ret;
}

// The noop shim tells Mesa not to wait for fences. This card completes them.
int setenv(const char *name, const char *value, int overwrite)
{
	if (!next_setenv)
		find();
	if (!strcmp(name, "NOUVEAU_DISABLE_FENCES"))
		return 0;
	return next_setenv(name, value, overwrite);
}
