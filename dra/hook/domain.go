package main

import (
	"errors"
	"fmt"

	"github.com/beevik/etree"

	"github.com/umbra-gpu/umbra/dra/plugin"
)

const qemuNamespace = "http://libvirt.org/schemas/domain/qemu/1.0"

// attach adds QEMU's arguments for the sockets to a domain, and lets the server map its memory.
func attach(text string, sockets []string) (string, error) {
	document := etree.NewDocument()
	if err := document.ReadFromString(text); err != nil {
		return "", fmt.Errorf("--domain: %w; give a libvirt domain as XML", err)
	}
	domain := document.Root()
	if domain == nil || domain.FullTag() != "domain" {
		return "", errors.New("--domain: must be an element <domain>")
	}
	if len(sockets) == 0 {
		return text, nil
	}
	prefix := ""
	for _, a := range domain.Attr {
		if a.Space == "xmlns" && a.Value == qemuNamespace {
			prefix = a.Key
		}
	}
	if prefix == "" {
		prefix = "qemu"
		domain.CreateAttr("xmlns:qemu", qemuNamespace)
	}
	arguments := child(domain, prefix+":commandline")
	for _, s := range sockets {
		arguments.CreateElement(prefix+":arg").CreateAttr("value", "-device")
		arguments.CreateElement(prefix+":arg").CreateAttr("value", plugin.QEMUDevice(s))
	}
	// The server maps what the guest's memory is made of, so it must be shared. A file is, too.
	backing := child(domain, "memoryBacking")
	if source := child(backing, "source"); source.SelectAttrValue("type", "anonymous") == "anonymous" {
		source.CreateAttr("type", "memfd")
	}
	child(backing, "access").CreateAttr("mode", "shared")
	return document.WriteToString()
}

// child is the child of a name, which is made if it is missing.
func child(of *etree.Element, name string) *etree.Element {
	if e := of.SelectElement(name); e != nil {
		return e
	}
	return of.CreateElement(name)
}
