package config

import (
	"errors"
	"path/filepath"
	"slices"
)

// Names of the sockets of a server, as LISTEN_FDNAMES has them.
const (
	ControlSocket = "control"
	WholeSocket   = "socket" // of a guest that has the whole card
	GPUSocket     = "gpu-"   // and the name of the GPU
)

// A SocketPath is an option that is the path of a socket.
type SocketPath struct {
	Name   string // as in Config.Inherited
	Path   *string
	Where  string // as the user wrote the option
	Access *Access

	whereOf func(key string) string
}

// WhereOf names a key of Access as the user wrote it.
func (s *SocketPath) WhereOf(key string) string { return s.whereOf(key) }

// SocketPath is the socket of a GPU.
func (g *GPU) SocketPath() SocketPath {
	return SocketPath{GPUSocket + g.Name, &g.Socket, g.Where("socket"), &g.Access, func(key string) string { return g.Where("access." + key) }}
}

// Sockets lists the sockets that a server with these GPUs listens on.
func (c *Config) Sockets(gpus []GPU) []SocketPath {
	all := []SocketPath{
		{WholeSocket, &c.Socket, c.Where("socket"), &c.Access, func(key string) string { return c.Where("access." + key) }},
		{ControlSocket, &c.Control, c.Where("control"), &c.Admins, func(key string) string { return c.Where("control-access." + key) }},
	}
	for i := range gpus {
		all = append(all, gpus[i].SocketPath())
	}
	return slices.DeleteFunc(all, func(s SocketPath) bool { return *s.Path == "" })
}

// inherit completes the path of a socket that the parent process opened. The user gave the path, and who may
// connect in keys that begin with access, as by says.
func (c *Config) inherit(name string, path *string, by *entry, key, access string) error {
	theirs := c.Inherited[name]
	if theirs == "" {
		return nil
	}
	var errs []error
	if abs, err := filepath.Abs(*path); *path != "" && (err != nil || abs != theirs) {
		errs = append(errs, &Error{by.Where(key), *path, "the parent process opened " + theirs + " for it (" + name + " in LISTEN_FDNAMES); leave this path out"})
	}
	for _, key := range []string{access + ".mode", access + ".user", access + ".group"} {
		if s := by.get(key); s.where != "" && !s.bad {
			errs = append(errs, &Error{s.where, s.value, "has no effect: the parent process opened " + theirs + " (" + name + " in LISTEN_FDNAMES); say it there"})
		}
	}
	*path = theirs
	return errors.Join(errs...)
}
