// Package nvrm makes channels on a card through the host's NVIDIA driver: the calls of its resource manager (RM),
// which any user may make. A [Client] has objects by handle: memory, address spaces, channels. The driver frees
// all of them when the process ends.
//
// The structures are those of package nvgpu (gvisor.dev/gvisor) where it has them, else in abi.go; they depend on the driver's
// release. Sources: nvos.h, and the class and ctrl headers of NVIDIA's open-gpu-kernel-modules.
//
// There are no goroutines or locks: the owner makes one call at a time, except that [Events.Next] may run beside
// the others.
package nvrm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// System has the driver's device files.
type System interface {
	// Open opens a device file, for example "nvidiactl".
	Open(name string) (File, error)
	// Release is the driver's release, for example "580.95.05".
	Release() (string, error)
}

// File is an open device file of the driver.
type File interface {
	// Ioctl makes a call of the driver. arg is its structure.
	Ioctl(number uint8, arg []byte) error
	// OS is the file itself, for another process, for mmap and for poll.
	OS() *os.File
	Close() error
}

// Escapes are the numbers of all calls that a [Client] makes.
var Escapes = []uint8{
	nvgpu.NV_ESC_CARD_INFO, nvgpu.NV_ESC_REGISTER_FD, nvgpu.NV_ESC_ALLOC_OS_EVENT, nvgpu.NV_ESC_RM_ALLOC_MEMORY, nvgpu.NV_ESC_RM_FREE,
	nvgpu.NV_ESC_RM_CONTROL, nvgpu.NV_ESC_RM_ALLOC, nvgpu.NV_ESC_RM_MAP_MEMORY, escGetEventData,
	nvgpu.NV_ESC_RM_MAP_MEMORY_DMA, nvgpu.NV_ESC_RM_UNMAP_MEMORY_DMA,
}

// Host is the system of this machine.
type Host struct{}

type hostFile struct{ *os.File }

// Open implements System.
func (Host) Open(name string) (File, error) {
	f, err := os.OpenFile("/dev/"+name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return hostFile{f}, nil
}

// Missing is what keeps channels from a card, with the command that mends it, run by root, or an option of umbra serve.
type Missing struct{ What, Command string }

func (m *Missing) Error() string { return m.What + "; remedy: " + m.Command }

// NoFile says that a device file is missing, and NoAccess that it is closed to a user.
func NoFile(path string) *Missing {
	return &Missing{"there is no " + path, "nvidia-modprobe -c " + strings.TrimPrefix(strings.Replace(path, "ctl", "255", 1), "/dev/nvidia")}
}

func NoAccess(path, user string) *Missing {
	return &Missing{fmt.Sprintf("user %s may not read and write %s", user, path), "chmod 666 " + path}
}

// open opens a device file.
func open(sys System, name string) (File, error) {
	f, err := sys.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, NoFile("/dev/" + name)
	case errors.Is(err, fs.ErrPermission):
		return nil, NoAccess("/dev/"+name, fmt.Sprint(os.Getuid()))
	}
	return f, err
}

// VersionFile says the driver's release.
const VersionFile = "/proc/driver/nvidia/version"

// Release implements System.
func (Host) Release() (string, error) {
	b, err := os.ReadFile(VersionFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &Missing{"the NVIDIA driver is not loaded", "modprobe nvidia"}
	} else if err != nil {
		return "", err
	}
	r := releaseForm.FindString(string(b))
	if r == "" {
		return "", fmt.Errorf("no release in the driver's version %q", b)
	}
	return r, nil
}

// OS implements File.
func (f hostFile) OS() *os.File { return f.File }
