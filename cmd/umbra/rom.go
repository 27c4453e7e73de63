package main

import (
	"fmt"
	"io"
	"os"
)

type romCmd struct {
	Build romBuildCmd `cmd:"" help:"Build an image."`
	Show  romShowCmd  `cmd:"" help:"Show what an image holds, field by field."`
}

// standard stands for standard input or output in place of a file's name.
const standard = "-"

// maxROM bounds what is read: twice the largest image a card can show.
const maxROM = 2 << 20

// readROM reads an image file.
func readROM(name string) ([]byte, error) {
	f := os.Stdin
	if name != standard {
		var err error
		if f, err = os.Open(name); err != nil {
			return nil, err
		}
		defer f.Close()
	}
	data, err := io.ReadAll(io.LimitReader(f, maxROM+1))
	if err == nil && len(data) > maxROM {
		err = fmt.Errorf("%s: more than %d bytes, too large for a VBIOS image", name, maxROM)
	}
	return data, err
}
