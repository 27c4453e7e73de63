package main

import (
	"fmt"

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
