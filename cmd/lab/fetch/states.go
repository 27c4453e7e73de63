package fetch

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// stateAge is how long a state of something of the user's own is kept after its last use: programs may run on it.
const stateAge = 12 * time.Hour

// makeState sees to one state of something of the user's own, by a hash of its content. The folder has a folder for each state.
func (c *Cache) makeState(ctx context.Context, what, folder, state string, stamp any, fill func(tmp string) error) error {
	made := false
	err := c.make(ctx, what, filepath.Join(folder, state), stamp, nil, func(tmp string) error {
		made = true
		return fill(tmp)
	})
	if err != nil {
		return err
	}
	now := time.Now()
	if err := os.Chtimes(filepath.Join(folder, state), now, now); err != nil || !made {
		return err
	}
	for _, old := range match(folder, "*") {
		if info, err := os.Stat(old); err == nil && now.Sub(info.ModTime()) > stateAge {
			// A state without its stamp is made again. What cannot be removed only takes room.
			os.Remove(filepath.Join(old, stampFile))
			os.RemoveAll(old)
		}
	}
	return nil
}
