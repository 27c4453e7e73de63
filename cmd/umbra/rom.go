package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/firmware"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

type romCmd struct {
	Build romBuildCmd `cmd:"" help:"Build a VBIOS image."`
	Show  romShowCmd  `cmd:"" help:"Show every field of a VBIOS image."`
}

type romShowCmd struct {
	File string `arg:"" placeholder:"FILE" help:"Image to show; - for standard input."`
	JSON bool   `name:"json" help:"Write JSON."`
}

func (c *romShowCmd) Run(out output) error {
	data, err := config.ReadInput(c.File)
	if err != nil {
		return badFile(c.File, err)
	}
	img, err := firmware.Parse(data)
	if err != nil {
		return badFile(c.File, err)
	}
	if c.JSON {
		return writeIndented(out.stdout, img)
	}
	if err := firmware.Show(out.stdout, img); err != nil {
		return err
	}
	verdict := "a driver can use it"
	if err := firmware.Check(img, gf100.VendorID, gf100.DeviceID); err != nil {
		verdict = "a driver cannot use it:\n" + err.Error()
	}
	_, err = fmt.Fprintf(out.stdout, "\nOn the card that umbra serve makes (%04x:%04x) %s\n", gf100.VendorID, gf100.DeviceID, verdict)
	return err
}

type romBuildCmd struct {
	Output  string      `short:"o" placeholder:"FILE" help:"File to write the image to; - is standard output, none checks the image and writes nothing."`
	Device  config.ID   `placeholder:"ID" help:"PCI device id in hexadecimal (default: 06d8, Quadro 6000)."`
	Size    config.Size `placeholder:"SIZE" validate:"min=512B,max=130560B,multiple=512B" help:"Size of the image, a multiple of 512 bytes (default: 8KiB)."`
	Memory  string      `placeholder:"KIND" validate:"oneof=ddr2 ddr3 gddr3 gddr5" help:"Kind of memory on the board: ddr2, ddr3, gddr3 or gddr5 (default: ddr3)."`
	Without []string    `placeholder:"T" help:"BIT tokens to leave out, by letter."`
}

var memoryKinds = map[string]uint8{
	"ddr2": firmware.MemoryDDR2, "ddr3": firmware.MemoryDDR3, "gddr3": firmware.MemoryGDDR3, "gddr5": firmware.MemoryGDDR5,
}

func (c *romBuildCmd) Run(out output) error {
	if c.Output == "" {
		return &config.Error{Where: "-o", Reason: "missing; give the file to write, for example -o gf100.rom, -o - for standard output, or -o none for none"}
	}
	o := firmware.Options{Device: uint16(c.Device), Size: int(c.Size)}
	if kind, ok := memoryKinds[c.Memory]; ok {
		o.MemoryType = &kind
	}
	for _, token := range c.Without {
		if len(token) != 1 || !strings.Contains(firmware.Tokens, token) || strings.Contains(o.Without, token) {
			return &config.Error{Where: "--without", Value: token, Reason: "the image has no such BIT token; rom show lists them"}
		}
		o.Without += token
	}
	data, err := firmware.Build(o)
	if err != nil {
		return err
	}
	img, err := firmware.Parse(data)
	if err != nil {
		return fmt.Errorf("the image built does not parse: %w", err)
	}
	board := img.Parts[0]
	if err := firmware.Check(img, gf100.VendorID, uint16(board.Device)); err != nil {
		fmt.Fprintf(out.stderr, "umbra: warning: a driver cannot use this image:\n%v\n", err)
	}
	switch c.Output {
	case "-":
		_, err := out.stdout.Write(data)
		return err
	case noFile:
	default:
		err := os.WriteFile(c.Output, data, 0o644)
		if path := new(fs.PathError); errors.As(err, &path) && path.Op == "open" {
			return &config.Error{Where: "-o", Value: c.Output, Reason: path.Err.Error()}
		}
		if err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out.stdout, "%s: %d bytes for %04x:%04x, sha256 %x\n", c.Output, len(data), board.Vendor, board.Device, []byte(img.SHA256))
	return err
}
