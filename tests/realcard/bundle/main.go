// Command bundle lays out what the real card's machine needs to boot guests: QEMU, a kernel, and an image
// with Vulkan, vkmark and the project's programs. It has a part of the lab's cache, so that package lab finds
// all there.
//
//	bundle DIR           lays that out
//	bundle -others DIR   lays out one more image, others.cpio, with programs of others
//	bundle -mend FILE    makes a libvulkan_nouveau.so of Debian run programs on Hopper
//
// GSP's firmware, 60 MiB, is a stub of the right form: nothing in a virtual GPU executes it, and the
// guest's driver reads only the names and sizes of its sections.
package main

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/cmd/lab/image"
)

const (
	kernel   = "7.2"
	mesa     = "26"
	programs = "tests/e2e/programs/vulkan"
)

func main() {
	others := flag.Bool("others", false, "one more image, with programs of others")
	library := flag.Bool("mend", false, "make a library run programs on Hopper")
	flag.Parse()
	if flag.NArg() != 1 || *others && *library {
		fmt.Fprintln(os.Stderr, "bundle: want one folder, an empty one: bundle [-others] DIR; or a library: bundle -mend FILE")
		os.Exit(2)
	}
	var err error
	switch {
	case *library:
		err = mend(flag.Arg(0))
	case *others:
		err = prepare(context.Background(), flag.Arg(0), layOutOthers)
	default:
		err = prepare(context.Background(), flag.Arg(0), layOut)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

// prepare sees to the kernel and the firmware of an image, and lays out the rest.
func prepare(ctx context.Context, dir string, layOut func(context.Context, *fetch.Cache, image.Content, string) error) error {
	from, err := fetch.DefaultDir()
	if err != nil {
		return err
	}
	cache := &fetch.Cache{Dir: from, Progress: os.Stderr}
	var c image.Content
	if c.Kernel, err = cache.Kernel(ctx, kernel); err != nil {
		return err
	}
	if c.Firmware, c.FirmwareFiles, err = firmware(ctx, cache, c.Kernel, filepath.Join(dir, "firmware")); err != nil {
		return err
	}
	return layOut(ctx, cache, c, dir)
}

// layOut lays out QEMU, the kernel, and the image with Vulkan.
func layOut(ctx context.Context, cache *fetch.Cache, c image.Content, dir string) error {
	qemu, err := cache.QEMU(ctx)
	if err != nil {
		return err
	}
	files, err := qemu.Files()
	if err != nil {
		return err
	}
	for i, f := range files {
		files[i] = filepath.Join("qemu/root", f)
	}
	linux := path.Join("kernels", kernel)
	files = append(files, "qemu/stamp.json", linux+"/stamp.json", linux+"/"+filepath.Base(c.Kernel.Image))
	if err := take(ctx, cache.Dir, filepath.Join(dir, "cache"), files); err != nil {
		return err
	}
	m, err := cache.VulkanMark(ctx, mesa)
	if err != nil {
		return err
	}
	return compose(ctx, dir, "image.cpio", c, m, programs+"/*.c")
}

// layOutOthers lays out the image with programs of others.
func layOutOthers(ctx context.Context, cache *fetch.Cache, c image.Content, dir string) error {
	m, err := cache.Others(ctx)
	if err != nil {
		return err
	}
	built, err := os.MkdirTemp("", "umbra-vkpeak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(built)
	if c.Programs, err = addVkpeak(ctx, dir, built, m); err != nil {
		return err
	}
	return compose(ctx, dir, "others.cpio", c, m, "tests/e2e/programs/compute.c", programs+"/vkfft.c", "tests/shim/programs/saxpy.c", "tests/shim/programs/reduce.c")
}

// hopper lays out a Mesa that runs programs on Hopper: with the files of MESA_OVER, or with Debian's driver mended if it can be.
func hopper(ctx context.Context, from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := run(ctx, "", "cp", "-a", "--", from, to); err != nil {
		return err
	}
	if over := os.Getenv("MESA_OVER"); over != "" {
		return run(ctx, "", "cp", "-a", "--remove-destination", "--", over+"/.", to)
	}
	return mendOrWarn(filepath.Join(to, nvk), os.Stderr)
}

// compose builds an image with programs, and leaves nothing else of it in the folder.
func compose(ctx context.Context, dir, name string, c image.Content, m fetch.Mesa, sources ...string) error {
	src, err := image.Source()
	if err != nil {
		return err
	}
	whole := filepath.Join(dir, "mesa", "root") // what is compiled for it goes beside it
	if err := hopper(ctx, m.Root, whole); err != nil {
		return err
	}
	m.Root, c.Mesa = whole, &m
	for _, pattern := range sources {
		found, err := filepath.Glob(filepath.Join(src, pattern))
		if err != nil {
			return err
		}
		c.Programs = append(c.Programs, found...)
	}
	built, err := image.Build(ctx, filepath.Join(dir, "images"), c)
	if err != nil {
		return err
	}
	if err := os.Rename(built, filepath.Join(dir, name)); err != nil {
		return err
	}
	for _, made := range []string{"images", "firmware", "mesa"} {
		if err := os.RemoveAll(filepath.Join(dir, made)); err != nil {
			return err
		}
	}
	return nil
}

// take copies files and links of a folder, with the folders above each.
func take(ctx context.Context, from, to string, files []string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	return run(ctx, from, "cp", slices.Concat([]string{"-a", "--parents", "--"}, files, []string{to})...)
}

func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	return cmd.Run()
}

// firmware makes a folder of what the kernel asks for, with the stub.
func firmware(ctx context.Context, cache *fetch.Cache, k fetch.Kernel, dir string) (*fetch.Firmware, []string, error) {
	names, err := k.Firmware(lab.ChipGH100)
	if err != nil {
		return nil, nil, err
	}
	all, err := cache.Firmware(ctx)
	if err != nil {
		return nil, nil, err
	}
	var stubs []string
	names = slices.DeleteFunc(names, func(name string) bool {
		if stub := strings.HasPrefix(path.Base(name), "gsp-"); stub {
			stubs = append(stubs, name)
			return true
		}
		return false
	})
	files, err := all.Files(names)
	if err == nil {
		err = take(ctx, all.Root, dir, files)
	}
	for _, name := range stubs {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), stub(), 0o644)
		}
	}
	return &fetch.Firmware{Root: dir}, append(files, stubs...), err
}

// stub is an ELF file with the sections that nouveau looks for, a page of zeros each.
func stub() []byte {
	const page = 4096
	names := "\x00.fwimage\x00.fwsignature_gh100\x00.shstrtab\x00"
	at := func(name string) uint32 { return uint32(strings.Index(names, "\x00"+name+"\x00") + 1) }
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_REL), Machine: uint16(elf.EM_RISCV), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Shentsize: 64, Shnum: 4, Shstrndx: 3,
		Shoff: 3 * page,
	}
	sections := []elf.Section64{
		{},
		{Name: at(".fwimage"), Type: uint32(elf.SHT_PROGBITS), Off: page, Size: page},
		{Name: at(".fwsignature_gh100"), Type: uint32(elf.SHT_PROGBITS), Off: 2 * page, Size: page},
		{Name: at(".shstrtab"), Type: uint32(elf.SHT_STRTAB), Off: 64, Size: uint64(len(names))},
	}
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, header) // writes to a Buffer do not fail
	b.WriteString(names)
	b.Write(make([]byte, 3*page-b.Len()))
	binary.Write(&b, binary.LittleEndian, sections)
	return b.Bytes()
}
