package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

type configCmd struct {
	Save configSaveCmd `cmd:"" help:"Write a configuration file that makes the same server again: its GPUs, weights and caps as they are now."`
}

type configSaveCmd struct {
	server
	File string `arg:"" default:"-" help:"File to write, in place of one that is there; - is standard output."`
}

// Help is the text below the usage.
func (configSaveCmd) Help() string {
	return "umbra serve --config FILE starts such a server, with options that flags gave to this one. GPUs have no profiles there, but the keys of these. " +
		"Comments of the first file are not kept."
}

func (c *configSaveCmd) Run(ctx context.Context, out output) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	saved, err := client.Save(ctx)
	switch {
	case err != nil:
		return err
	case c.File == "-" && c.JSON:
		return json.NewEncoder(out.stdout).Encode(saved)
	}
	text := fmt.Sprintf("# Saved by umbra %s at %s.\n%s", versionString(), time.Now().UTC().Format(time.RFC3339), saved.YAML)
	if c.File == "-" {
		_, err = io.WriteString(out.stdout, text)
		return err
	}
	return replaceFile(c.File, text)
}

// replaceFile writes a file whole or not at all.
func replaceFile(name, text string) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return badFile(name, err)
	}
	defer os.Remove(f.Name())
	_, err = io.WriteString(f, text)
	for _, step := range []func() error{func() error { return f.Chmod(0o644) }, f.Sync, f.Close} {
		if stepErr := step(); err == nil {
			err = stepErr
		}
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return badFile(name, err)
	}
	return nil
}
