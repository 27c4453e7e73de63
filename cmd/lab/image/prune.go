package image

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Images are kept for maxAge after their last use, but those that were not used for minAge only
// while all together have room.
const (
	maxAge = 2 * time.Hour
	minAge = 10 * time.Minute
	room   = 2 << 30
)

// prune removes old images. A machine needs its image only to start.
func prune(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.cpio"))
	if err != nil {
		return err
	}
	type image struct {
		name string
		size int64
		age  time.Duration
	}
	var images []image
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			images = append(images, image{name, info.Size(), time.Since(info.ModTime())})
		}
	}
	slices.SortFunc(images, func(a, b image) int { return cmp.Compare(a.age, b.age) })
	total := int64(0)
	for _, i := range images {
		total += i.size
		if i.age > maxAge || i.age > minAge && total > room {
			os.Remove(i.name) // what cannot be removed only takes room
		}
	}
	return nil
}
