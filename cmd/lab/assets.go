package lab

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/cmd/lab/image"
)

// Assets are the things a machine is started from.
type Assets struct {
	QEMU   fetch.QEMU
	Kernel fetch.Kernel
	Mesa   *fetch.Mesa // nil for none
	Image  string      // initramfs for Kernel

	firmware      *fetch.Firmware // nil for none
	firmwareFiles []string
}

// Ensure fetches what these machines need, and builds their images, so that starting one later does
// not wait. Images with Mesa are built with their programs, at the start of a machine.
func Ensure(ctx context.Context, progress io.Writer, machines ...Config) ([]Assets, error) {
	var out []Assets
	for _, cfg := range machines {
		cfg.Progress = progress
		if err := cfg.setDefaults(); err != nil {
			return out, err
		}
		a, err := assets(ctx, cfg)
		if err == nil && cfg.Mesa == "" && a.Image == "" {
			err = a.build(ctx, Config{})
		}
		if err != nil {
			return out, err
		}
		out = append(out, a)
	}
	return out, nil
}

func assets(ctx context.Context, cfg Config) (Assets, error) {
	dir, err := fetch.DefaultDir()
	if err != nil {
		return Assets{}, err
	}
	cache := &fetch.Cache{Dir: dir, Progress: cfg.Progress}
	var a Assets
	if a.QEMU, err = cache.QEMU(ctx); err != nil {
		return a, err
	}
	if fetch.IsPath(cfg.Kernel) {
		a.Kernel, err = cache.OwnKernel(ctx, cfg.Kernel, cfg.Modules)
	} else {
		a.Kernel, err = cache.Kernel(ctx, cfg.Kernel)
	}
	if err != nil {
		return a, err
	}
	if a.Image = cfg.Image; a.Image != "" {
		return a, nil
	}
	if cfg.Chip != "" {
		if err := a.addFirmware(ctx, cache, cfg.Chip); err != nil {
			return a, err
		}
	}
	if cfg.Mesa != "" {
		get := cache.Mesa
		switch {
		case cfg.Chip == ChipGH100:
			get = cache.Vulkan
		case cfg.Tools:
			get = cache.Tools
		}
		mesa, err := get(ctx, cfg.Mesa)
		if err != nil {
			return a, err
		}
		a.Mesa = &mesa
	}
	return a, nil
}

// addFirmware finds what the kernel's driver asks for.
func (a *Assets) addFirmware(ctx context.Context, cache *fetch.Cache, chip string) error {
	names, err := a.Kernel.Firmware(chip)
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if len(names) == 0 {
		return fmt.Errorf("lab: Linux %s has no driver for a %s; %s have one: take --kernel %s",
			a.Kernel.Release, chip, strings.Join(KernelsGH100, ", "), kernelGH100)
	}
	f, err := cache.Firmware(ctx)
	if err != nil {
		return err
	}
	a.firmware = &f
	a.firmwareFiles, err = f.Files(names)
	return err
}

// build builds the image.
func (a *Assets) build(ctx context.Context, cfg Config) error {
	dir, err := fetch.DefaultDir()
	if err != nil {
		return err
	}
	a.Image, err = image.Build(ctx, filepath.Join(dir, "images"), image.Content{
		Kernel: a.Kernel, Mesa: a.Mesa, Programs: cfg.Programs, Only: cfg.Only, Firmware: a.firmware, FirmwareFiles: a.firmwareFiles, Progress: cfg.Progress,
	})
	return err
}
