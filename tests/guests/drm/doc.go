// Package drm speaks the DRM ioctls of Linux's nouveau driver, in pure Go: the
// legacy interface (ABI16 channels, GEM buffers, GEM_PUSHBUF) that Mesa's nvc0
// driver uses, and the one that its Vulkan driver uses (VM_BIND, EXEC, timeline syncobjs).
//
// A Device is one open node, and to the kernel one client: one GPU address
// space, which all its channels share. Two Devices have nothing in common.
//
// Methods of a Device, a Channel or a Buffer may be called from several
// goroutines; the package holds no lock of its own (the kernel serialises the
// ioctls of one client) and starts no goroutine. Close what was opened, buffers
// and channels before their device.
package drm
