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

// scores runs vkmark in all guests at once.
func (g *guests) scores(ctx context.Context, s *result, argv ...string) (scores []float64, texts []string, err error) {
	scores, texts = make([]float64, len(g.vms)), make([]string, len(g.vms))
	err = g.each(func(i int, vm *lab.VM) (err error) {
		texts[i], err = runIn(ctx, vm, nil, append([]string{"vkmark", "--winsys", "headless"}, argv...)...)
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
	return scores, texts, err
}

// busyScene has the guests draw pictures so large that the card is what they wait for. vkmark keeps few of them under way: a
// guest that has drawn those leaves the rest of its time slice to the other.
func (g *guests) busyScene(ctx context.Context, s *result) error {
	scores, _, err := g.scores(ctx, s, "--size", "2048x2048", "-b", "effect2d:duration=20")
	if err != nil {
		return err
	}
	share := 100 * scores[0] / (scores[0] + scores[1])
	s.note("share of weight 1 beside 3", share, "%")
	if share > 45 {
		err = fmt.Errorf("the guest of weight 1 drew %.1f %% of the frames: weights have no effect", share)
	}
	return err
}

// scenes are vkmark's own choice but for shading=cel.
var scenes = []string{
	"vertex:device-local=true", "vertex:device-local=false", "texture:anisotropy=0", "texture:anisotropy=16",
	"shading:shading=gouraud", "shading:shading=blinn-phong-inf", "shading:shading=phong",
	"effect2d:kernel=edge", "effect2d:kernel=blur", "desktop", "cube", "clear",
}

// cel draws the scene whose program branches. With Debian's Mesa as it is, the card stops that.
func (g *guests) cel(ctx context.Context, s *result) error {
	_, _, err := g.scores(ctx, s, "--size", "800x600", "-b", "shading:shading=cel:duration=4")
	return g.refused(err)
}

// vkmark notes the score of each guest, how far they are apart, and the frames of each scene of the first.
func (g *guests) vkmark(ctx context.Context, s *result) error {
	argv := []string{"--size", "800x600", "-b", ":duration=4"}
	for _, scene := range scenes {
		argv = append(argv, "-b", scene)
	}
	scores, texts, err := g.scores(ctx, s, argv...)
	if err != nil {
		return g.refused(err)
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
