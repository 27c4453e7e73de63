// Package guests is the root of a module of its own: the programs that run
// inside a lab guest, and u-root, which packs them into an initramfs. It stays
// out of the main module so that users of Umbra never see u-root's
// dependencies.
package guests
