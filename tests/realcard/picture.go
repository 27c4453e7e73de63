package main

import (
	"encoding/hex"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"strings"
)

// keepPicture makes a file of the rows that program triangle prints.
func keepPicture(text, file string) error {
	const side, background = 256, 0x40
	img := image.NewNRGBA(image.Rect(0, 0, side, side))
	draw.Draw(img, img.Rect, image.NewUniform(color.NRGBA{background, background, background, 255}), image.Point{}, draw.Src)
	for line := range strings.Lines(text) {
		var x, y int
		var digits string
		if n, _ := fmt.Sscanf(line, "row %d %d %s", &y, &x, &digits); n != 3 {
			continue // Mesa may warn
		}
		colours, err := hex.DecodeString(digits)
		if err != nil {
			return fmt.Errorf("row %d: %w", y, err)
		}
		for ; len(colours) >= 3; colours, x = colours[3:], x+1 {
			img.SetNRGBA(x, y, color.NRGBA{colours[0], colours[1], colours[2], 255})
		}
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return png.Encode(f, img)
}
