// OpenGL without a window, for compute programs that print what they compute.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Of EGL/egl.h and GL/glcorearb.h, which Debian has in packages for developers.
typedef unsigned GLenum, GLuint;
typedef int GLint, GLsizei;
void *eglGetPlatformDisplay(unsigned, void *, const intptr_t *);
unsigned eglInitialize(void *, int *, int *), eglBindAPI(unsigned);
unsigned eglMakeCurrent(void *, void *, void *, void *);
void *eglCreateContext(void *, void *, void *, const int *);
void glActiveTexture(GLenum), glBindBufferBase(GLenum, GLuint, GLuint), glBindBuffer(GLenum, GLuint), glBindTexture(GLenum, GLuint);
void glBufferData(GLenum, intptr_t, const void *, GLenum), glGenBuffers(GLsizei, GLuint *), glGenTextures(GLsizei, GLuint *);
void glGetBufferSubData(GLenum, intptr_t, intptr_t, void *), glDispatchCompute(GLuint, GLuint, GLuint), glMemoryBarrier(GLuint);
void glTexParameteri(GLenum, GLenum, GLint), glTexParameterfv(GLenum, GLenum, const float *), glTexParameterf(GLenum, GLenum, float);
void glTexParameterIiv(GLenum, GLenum, const GLint *);
void glTexImage1D(GLenum, GLint, GLint, GLsizei, GLint, GLenum, GLenum, const void *);
void glTexImage2D(GLenum, GLint, GLint, GLsizei, GLsizei, GLint, GLenum, GLenum, const void *);
void glTexImage3D(GLenum, GLint, GLint, GLsizei, GLsizei, GLsizei, GLint, GLenum, GLenum, const void *);
void glTexBuffer(GLenum, GLenum, GLuint), glUseProgram(GLuint), glDeleteTextures(GLsizei, const GLuint *), glDeleteBuffers(GLsizei, const GLuint *);
void glPixelStorei(GLenum, GLint), glDispatchComputeIndirect(intptr_t);
GLuint glCreateShaderProgramv(GLenum, GLsizei, const char *const *);
void glGetProgramInfoLog(GLuint, GLsizei, GLsizei *, char *), glGetProgramiv(GLuint, GLenum, GLint *), glDeleteProgram(GLuint);
GLenum glGetError(void);

static uint64_t state;
static unsigned rnd(unsigned n) { state = state * 6364136223846793005u + 1442695040888963407u; return (state >> 33) % n; }
static float between(float a, float b) { return a + (b - a) * (rnd(1 << 20) + .5f) / (1 << 20); }

static int fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	return 1;
}

// compile returns 0 if it fails.
static GLuint compile(const char *source)
{
	GLuint program = glCreateShaderProgramv(0x91b9, 1, &source);
	GLint ok = 0;
	glGetProgramiv(program, 0x8b82, &ok);
	if (ok)
		return program;
	char log[1024];
	glGetProgramInfoLog(program, sizeof log, 0, log);
	fprintf(stderr, "%s\n%s", source, log);
	return 0;
}

static int failed(void)
{
	GLenum error = glGetError();
	if (error)
		fprintf(stderr, "error %#x\n", error);
	return error != 0;
}

// start makes a context.
static int start(void)
{
	setenv("GALLIVM_PERF", "no_brilinear,no_rho_approx,no_quad_lod,no_aos_sampling", 1); // exact, not fast
	void *display = eglGetPlatformDisplay(0x31dd, 0, 0);
	static const int wanted[] = {0x3098, 4, 0x30fb, 3, 0x30fd, 1, 0x3038};
	if (!eglInitialize(display, 0, 0) || !eglBindAPI(0x30a2))
		return fail("no EGL");
	void *context = eglCreateContext(display, 0, 0, wanted);
	if (!context || !eglMakeCurrent(display, 0, 0, context))
		return fail("no context");
	return 0;
}

// run runs a case of a program.
static int run(int number);

int main(int argc, char **argv)
{
	int cases = argc > 1 ? atoi(argv[1]) : 20;
	state = argc > 2 ? strtoull(argv[2], 0, 10) : 1;
	if (start())
		return 1;
	for (int i = 0; i < cases; i++)
		if (run(i))
			return 1;
	return 0;
}
