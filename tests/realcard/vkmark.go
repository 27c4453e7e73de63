package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/lab"
)

var (
	vkScore = regexp.MustCompile(`vkmark Score: (\d+)`)
	vkScene = regexp.MustCompile(`(?m)^(\[.*?)\s+FPS:\s*(\d+)`)
)

// vkmark notes the score of each guest, how far they are apart, and the frames of each scene of the first.
func (g *guests) vkmark(ctx context.Context, s *result) error {
	scores, texts := make([]float64, len(g.vms)), make([]string, len(g.vms))
	err := g.each(func(i int, vm *lab.VM) (err error) {
		texts[i], err = runIn(ctx, vm, "vkmark", "--winsys", "headless", "--size", "800x600")
		m := vkScore.FindStringSubmatch(texts[i])
		if err == nil && m == nil {
			err = fmt.Errorf("no score in %.300s", texts[i])
		}
		if err != nil {
			return err
		}
		scores[i], err = strconv.ParseFloat(m[1], 64)
		s.note("score "+vmName(i), scores[i], "")
		return err
	})
	if err != nil && g.card == soft && strings.Contains(err.Error(), "ErrorDeviceLost") {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	if err != nil {
		return err
	}
	var sum float64
	for _, score := range scores {
		sum += score
	}
	s.note("all", sum, "points")
	s.note("apart", 100*(1-slices.Min(scores)/slices.Max(scores)), "%")
	for _, m := range vkScene.FindAllStringSubmatch(texts[0], -1) {
		fps, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return err
		}
		s.note(m[1], fps, "frames/s")
	}
	return os.WriteFile(g.name+"-vkmark.txt", []byte(strings.Join(texts, "\n")), 0o644)
}
