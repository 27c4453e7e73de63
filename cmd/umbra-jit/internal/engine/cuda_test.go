package engine

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"
)

// cuda are functions of the CUDA driver, by their names without "cu".
type cuda struct {
	t testing.TB

	init           func(flags uint32) int32
	deviceGet      func(device *int32, n int32) int32
	deviceGetName  func(name *byte, size, device int32) int32
	driverVersion  func(version *int32) int32
	ctxRetain      func(context *uintptr, device int32) int32
	ctxSetCurrent  func(context uintptr) int32
	ctxSynchronize func() int32
	errorString    func(code int32, text *uintptr) int32
	moduleLoad     func(module *uintptr, image *byte) int32
	moduleUnload   func(module uintptr) int32
	getFunction    func(function *uintptr, module uintptr, name string) int32
	attribute      func(value *int32, attribute int32, function uintptr) int32
	memAlloc       func(at *uint64, size uint64) int32
	memFree        func(at uint64) int32
	memset         func(at uint64, value uint8, size uint64) int32
	toDevice       func(at uint64, from *byte, size uint64) int32
	toHost         func(to *byte, at, size uint64) int32
	launch         func(function uintptr, gx, gy, gz, bx, by, bz, shared uint32, stream uintptr, params *uint64, extra uintptr) int32
	eventCreate    func(event *uintptr, flags uint32) int32
	eventRecord    func(event, stream uintptr) int32
	eventSync      func(event uintptr) int32
	eventElapsed   func(ms *float32, from, to uintptr) int32

	device, driver string
	context        uintptr
	began, ended   uintptr // events
}

// openCUDA opens the first GPU. It returns nil if there is no driver.
func openCUDA(t testing.TB) *cuda {
	handle, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		t.Log(err)
		return nil
	}
	c := &cuda{t: t}
	for name, to := range map[string]any{
		"Init": &c.init, "DeviceGet": &c.deviceGet, "DeviceGetName": &c.deviceGetName, "DriverGetVersion": &c.driverVersion,
		"DevicePrimaryCtxRetain": &c.ctxRetain, "CtxSetCurrent": &c.ctxSetCurrent, "CtxSynchronize": &c.ctxSynchronize,
		"GetErrorString": &c.errorString, "ModuleLoadData": &c.moduleLoad, "ModuleUnload": &c.moduleUnload, "ModuleGetFunction": &c.getFunction,
		"FuncGetAttribute": &c.attribute, "MemAlloc_v2": &c.memAlloc, "MemFree_v2": &c.memFree, "MemsetD8_v2": &c.memset,
		"MemcpyHtoD_v2": &c.toDevice, "MemcpyDtoH_v2": &c.toHost, "LaunchKernel": &c.launch,
		"EventCreate": &c.eventCreate, "EventRecord": &c.eventRecord, "EventSynchronize": &c.eventSync, "EventElapsedTime": &c.eventElapsed,
	} {
		at, err := purego.Dlsym(handle, "cu"+name)
		require.NoError(t, err)
		purego.RegisterFunc(to, at)
	}
	var device, version int32
	name := make([]byte, 100)
	c.must(c.init(0))
	c.must(c.deviceGet(&device, 0))
	c.must(c.deviceGetName(&name[0], int32(len(name)-1), device))
	c.must(c.driverVersion(&version))
	c.must(c.ctxRetain(&c.context, device))
	c = c.of(t)
	c.must(c.eventCreate(&c.began, 0))
	c.must(c.eventCreate(&c.ended, 0))
	n := 0
	for name[n] != 0 {
		n++
	}
	c.device, c.driver = string(name[:n]), fmt.Sprintf("CUDA %d.%d", version/1000, version%1000/10)
	return c
}

// of makes the GPU that of a test's goroutine and thread, to which CUDA's contexts belong.
func (c *cuda) of(t testing.TB) *cuda {
	runtime.LockOSThread()
	own := *c
	own.t = t
	own.must(own.ctxSetCurrent(own.context))
	return &own
}

// must ends the test if a call failed.
func (c *cuda) must(code int32) {
	c.t.Helper()
	if code == 0 {
		return
	}
	var at uintptr
	text := []byte("?")
	if c.errorString(code, &at) == 0 && at != 0 {
		text = text[:0]
		for b := hostBytes(uint64(at), 1); b[0] != 0; b = hostBytes(uint64(at), 1) {
			text = append(text, b[0])
			at++
		}
	}
	require.Fail(c.t, "the CUDA driver refuses", "%d: %s", code, text)
}

// A gpuKernel is a kernel on the GPU.
type gpuKernel struct {
	*cuda
	module, function uintptr
	registers, local int32         // of a thread; local are bytes
	took             time.Duration // the driver's compiler
}

func (c *cuda) load(ptx []byte, name string) *gpuKernel {
	k := &gpuKernel{cuda: c}
	image := append(append([]byte(nil), ptx...), 0)
	start := time.Now()
	c.must(c.moduleLoad(&k.module, &image[0]))
	k.took = time.Since(start)
	c.must(c.getFunction(&k.function, k.module, name))
	const localBytes, registers = 3, 4
	c.must(c.attribute(&k.local, localBytes, k.function))
	c.must(c.attribute(&k.registers, registers, k.function))
	return k
}

// run launches the kernel, waits, and returns the time on the GPU and that of the whole call.
func (k *gpuKernel) run(grid, block [3]uint32, shared uint32, args []byte, offsets []int) (on, all time.Duration) {
	list := make([]byte, 8*len(offsets))
	for i, at := range offsets {
		binary.LittleEndian.PutUint64(list[8*i:], sliceAddress(args[at:]))
	}
	start := time.Now()
	k.must(k.eventRecord(k.began, 0))
	k.must(k.launch(k.function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, 0, word64(list), 0))
	k.must(k.eventRecord(k.ended, 0))
	k.must(k.eventSync(k.ended))
	all = time.Since(start)
	runtime.KeepAlive(args)
	runtime.KeepAlive(list)
	var ms float32
	k.must(k.eventElapsed(&ms, k.began, k.ended))
	return time.Duration(float64(ms) * float64(time.Millisecond)), all
}

func (k *gpuKernel) unload() { k.must(k.moduleUnload(k.module)) }
