// An OpenGL 4.3 compute shader without a window: a histogram by shared memory and atomics, and an
// image that a second shader reads. The declarations are those of the Khronos headers.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *eglGetPlatformDisplay(unsigned platform, void *native, const intptr_t *attributes);
unsigned eglInitialize(void *display, int *major, int *minor);
unsigned eglBindAPI(unsigned api);
void *eglCreateContext(void *display, void *config, void *share, const int *attributes);
unsigned eglMakeCurrent(void *display, void *draw, void *read, void *context);
int eglGetError(void);

const char *glGetString(unsigned name);
unsigned glCreateShader(unsigned type);
void glShaderSource(unsigned shader, int count, const char **strings, const int *lengths);
void glCompileShader(unsigned shader);
unsigned glCreateProgram(void);
void glAttachShader(unsigned program, unsigned shader);
void glLinkProgram(unsigned program);
void glGetProgramiv(unsigned program, unsigned name, int *value);
void glGetProgramInfoLog(unsigned program, int size, int *length, char *log);
void glUseProgram(unsigned program);
void glGenBuffers(int n, unsigned *names);
void glBindBuffer(unsigned target, unsigned name);
void glBindBufferBase(unsigned target, unsigned index, unsigned name);
void glBufferData(unsigned target, intptr_t size, const void *data, unsigned usage);
void glGetBufferSubData(unsigned target, intptr_t offset, intptr_t size, void *data);
void glGenTextures(int n, unsigned *names);
void glBindTexture(unsigned target, unsigned name);
void glTexStorage2D(unsigned target, int levels, unsigned format, int width, int height);
void glBindImageTexture(unsigned unit, unsigned texture, int level, unsigned char layered, int layer, unsigned access, unsigned format);
void glDispatchCompute(unsigned x, unsigned y, unsigned z);
void glMemoryBarrier(unsigned barriers);
unsigned glGetError(void);

enum {
	EGL_PLATFORM_SURFACELESS_MESA = 0x31dd, EGL_OPENGL_API = 0x30a2, EGL_CONTEXT_MAJOR_VERSION = 0x3098,
	EGL_CONTEXT_MINOR_VERSION = 0x30fb, EGL_NONE = 0x3038,
	GL_RENDERER = 0x1f01, GL_COMPUTE_SHADER = 0x91b9, GL_LINK_STATUS = 0x8b82, GL_SHADER_STORAGE_BUFFER = 0x90d2,
	GL_STATIC_DRAW = 0x88e4, GL_TEXTURE_2D = 0x0de1, GL_R32UI = 0x8236, GL_READ_WRITE = 0x88ba,
};

enum { n = 4096, width = 64, bins = 16 };

static const char *const histogram =
	"#version 430\n"
	"layout(local_size_x = 128) in;"
	"layout(std430, binding = 0) buffer In { uint data[]; };"
	"layout(std430, binding = 1) buffer Bins { uint bins[]; };"
	"layout(r32ui, binding = 0) uniform uimage2D image;"
	"shared uint part[16];"
	"void main() {"
	"	uint i = gl_GlobalInvocationID.x, lane = gl_LocalInvocationIndex;"
	"	if (lane < 16u) part[lane] = 0u;"
	"	barrier();"
	"	atomicAdd(part[data[i] >> 28], 1u);"
	"	imageStore(image, ivec2(i % 64u, i / 64u), uvec4(data[i] * 3u + i));"
	"	barrier();"
	"	if (lane < 16u) atomicAdd(bins[lane], part[lane]);"
	"}";

static const char *const transpose =
	"#version 430\n"
	"layout(local_size_x = 8, local_size_y = 8) in;"
	"layout(std430, binding = 0) buffer Out { uint data[]; };"
	"layout(r32ui, binding = 0) uniform uimage2D image;"
	"void main() {"
	"	ivec2 at = ivec2(gl_GlobalInvocationID.xy);"
	"	data[at.x * 64 + at.y] = imageLoad(image, at).x;"
	"}";

static void build(const char *source)
{
	unsigned shader = glCreateShader(GL_COMPUTE_SHADER), program = glCreateProgram();
	glShaderSource(shader, 1, &source, NULL);
	glCompileShader(shader);
	glAttachShader(program, shader);
	glLinkProgram(program);
	int ok = 0;
	glGetProgramiv(program, GL_LINK_STATUS, &ok);
	if (!ok) {
		char log[4096];
		glGetProgramInfoLog(program, sizeof log, NULL, log);
		fprintf(stderr, "%s\n", log);
		exit(1);
	}
	glUseProgram(program);
}

int main(void)
{
	const int version[] = {EGL_CONTEXT_MAJOR_VERSION, 4, EGL_CONTEXT_MINOR_VERSION, 3, EGL_NONE};
	void *display = eglGetPlatformDisplay(EGL_PLATFORM_SURFACELESS_MESA, NULL, NULL), *context;
	if (!eglInitialize(display, NULL, NULL) || !eglBindAPI(EGL_OPENGL_API) ||
	    !(context = eglCreateContext(display, NULL, NULL, version)) || !eglMakeCurrent(display, NULL, NULL, context)) {
		fprintf(stderr, "no OpenGL 4.3: EGL error %#x\n", eglGetError());
		return 1;
	}
	uint32_t in[n], out[n], want[bins] = {0}, got[bins] = {0};
	for (uint32_t i = 0; i < n; i++) {
		in[i] = i * 2654435761u;
		want[in[i] >> 28]++;
	}
	unsigned buffers[2], image;
	glGenBuffers(2, buffers);
	glBindBufferBase(GL_SHADER_STORAGE_BUFFER, 1, buffers[1]);
	glBufferData(GL_SHADER_STORAGE_BUFFER, sizeof got, got, GL_STATIC_DRAW);
	glBindBufferBase(GL_SHADER_STORAGE_BUFFER, 0, buffers[0]);
	glBufferData(GL_SHADER_STORAGE_BUFFER, sizeof in, in, GL_STATIC_DRAW);
	glGenTextures(1, &image);
	glBindTexture(GL_TEXTURE_2D, image);
	glTexStorage2D(GL_TEXTURE_2D, 1, GL_R32UI, width, n / width);
	glBindImageTexture(0, image, 0, 0, 0, GL_READ_WRITE, GL_R32UI);
	build(histogram);
	glDispatchCompute(n / 128, 1, 1);
	glMemoryBarrier(~0u);
	build(transpose);
	glDispatchCompute(width / 8, n / width / 8, 1);
	glMemoryBarrier(~0u);
	glGetBufferSubData(GL_SHADER_STORAGE_BUFFER, 0, sizeof out, out);
	glBindBuffer(GL_SHADER_STORAGE_BUFFER, buffers[1]);
	glGetBufferSubData(GL_SHADER_STORAGE_BUFFER, 0, sizeof got, got);
	unsigned err = glGetError();
	if (err) {
		fprintf(stderr, "OpenGL error %#x\n", err);
		return 1;
	}
	for (int i = 0; i < bins; i++)
		if (got[i] != want[i]) {
			fprintf(stderr, "bin %d has %u, want %u\n", i, got[i], want[i]);
			return 2;
		}
	for (uint32_t y = 0; y < n / width; y++)
		for (uint32_t x = 0; x < width; x++) {
			uint32_t i = y * width + x, w = in[i] * 3 + i;
			if (out[x * width + y] != w) {
				fprintf(stderr, "pixel %u %u is %#x, want %#x\n", x, y, out[x * width + y], w);
				return 2;
			}
		}
	printf("compute: %s\n", glGetString(GL_RENDERER));
}
