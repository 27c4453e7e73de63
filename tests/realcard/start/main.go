// Command start is the program run of a bundle (tools/real-card): it unpacks bundle.tar.xz, which lies beside it, and
// others.tar.xz, if that does, and becomes tests/realcard in the folder for results, with the same arguments. If this is root, that is nobody.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// nobody is that user and its group, as Debian and Ubuntu number them.
const nobody = 65534

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string) error {
	out := "real-card-results"
	if i := slices.Index(args, "--out"); i >= 0 && i+1 < len(args) {
		out = args[i+1]
		args = slices.Delete(slices.Clone(args), i, i+2)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "umbra-real-card-")
	if err != nil {
		return err
	}
	err = unpack(ctx, filepath.Join(filepath.Dir(self), "bundle.tar.xz"), dir)
	if more := filepath.Join(filepath.Dir(self), "others.tar.xz"); err == nil && exists(more) {
		err = unpack(ctx, more, dir)
	}
	if err := errors.Join(err, os.Chmod(dir, 0o755)); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	// nobody may be unable to reach the folder by its path, so the runner gets it as its working folder.
	if err := errors.Join(os.MkdirAll(out, 0o755), os.Chdir(out)); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if os.Geteuid() == 0 {
		err := errors.Join(os.Chown(".", nobody, nobody), chownAll(dir), syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody))
		if err != nil {
			return err
		}
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "XDG_") })
	env = append(env, "UMBRA_REAL_CARD="+dir, "UMBRA_CACHE="+filepath.Join(dir, "cache"), "HOME="+dir)
	runner := filepath.Join(dir, "bin/realcard")
	return fmt.Errorf("%s: %w", runner, syscall.Exec(runner, append([]string{runner}, args...), env))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// chownAll gives nobody all folders, so that the runner can remove them.
func chownAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chown(path, nobody, nobody)
		}
		return err
	})
}
