package kmod

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module builds the smallest ELF file that is a module to us.
func module(t *testing.T, modinfo ...string) []byte {
	info := []byte(strings.Join(modinfo, "\x00") + "\x00")
	names := []byte("\x00.modinfo\x00.shstrtab\x00")
	const head, entry = 64, 64
	sections := []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: head, Size: uint64(len(info))},
		{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: head + uint64(len(info)), Size: uint64(len(names))},
	}
	h := elf.Header64{
		Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1,
		Shoff: uint64(head + len(info) + len(names)), Ehsize: head,
		Shentsize: entry, Shnum: uint16(len(sections)), Shstrndx: 2,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	var b bytes.Buffer
	require.NoError(t, binary.Write(&b, binary.LittleEndian, h))
	b.Write(info)
	b.Write(names)
	require.NoError(t, binary.Write(&b, binary.LittleEndian, sections))
	return b.Bytes()
}

// tree writes modules and opens the folder.
func tree(t *testing.T, files map[string][]byte) *Tree {
	dir := t.TempDir()
	for name, data := range files {
		p := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		require.NoError(t, os.WriteFile(p, data, 0o644))
	}
	tr, err := Open(dir)
	require.NoError(t, err)
	return tr
}

func TestClosure(t *testing.T) {
	nouveau := module(t, "license=GPL", "depends=drm,mxm-wmi,drm_ttm_helper", "softdep=pre: absent post: extra", "firmware=nvidia/a.bin", "firmware=nvidia/b.bin")
	tr := tree(t, map[string][]byte{
		"kernel/gpu/nouveau.ko":        nouveau,
		"kernel/gpu/drm.ko":            module(t, "depends="),
		"kernel/gpu/drm_ttm_helper.ko": module(t, "depends=ttm,drm"),
		"kernel/gpu/ttm.ko":            module(t, "depends=drm"),
		"kernel/x86/mxm-wmi.ko":        module(t, "depends=wmi"),
		"kernel/x86/wmi.ko":            module(t),
		"kernel/x86/extra.ko":          module(t),
		"kernel/x86/unrelated.ko":      module(t, "depends=wmi"),
		"modules.order":                []byte("kernel/gpu/drm.ko\n"),
	})
	mods, err := tr.Closure("nouveau")
	require.NoError(t, err)
	var names []string
	for _, m := range mods {
		for _, d := range m.Depends {
			require.Contains(t, names, d, "%s comes before what it needs", m.Name)
		}
		names = append(names, m.Name)
	}
	require.ElementsMatch(t, []string{"drm", "ttm", "drm_ttm_helper", "wmi", "mxm_wmi", "extra", "nouveau"}, names)

	dst := t.TempDir()
	require.NoError(t, Install(dst, mods))
	got, err := os.ReadFile(filepath.Join(dst, "06-nouveau.ko"))
	require.NoError(t, err)
	require.Equal(t, nouveau, got)
	m, err := Read(filepath.Join(dst, "06-nouveau.ko"))
	require.NoError(t, err)
	require.Equal(t, []string{"nvidia/a.bin", "nvidia/b.bin"}, m.Firmware)
}

func TestClosureFails(t *testing.T) {
	tr := tree(t, map[string][]byte{
		"a.ko":      module(t, "depends=b"),
		"notelf.ko": []byte("text"),
		"bad.ko.xz": []byte("not xz"),
	})
	_, err := tr.Closure("a")
	require.ErrorContains(t, err, "no module b, which a needs")
	_, err = tr.Closure("notelf")
	require.ErrorContains(t, err, "notelf.ko")
	_, err = tr.Closure("bad")
	require.ErrorContains(t, err, "bad.ko.xz")
	_, err = Open(t.TempDir())
	require.ErrorContains(t, err, "no kernel modules")
}

// Modules that need each other do not happen, but must not hang us.
func TestClosureCycle(t *testing.T) {
	tr := tree(t, map[string][]byte{"a.ko": module(t, "depends=b"), "b.ko": module(t, "depends=a")})
	mods, err := tr.Closure("a")
	require.NoError(t, err)
	require.Len(t, mods, 2)
}

func TestUnsigned(t *testing.T) {
	plain := module(t, "license=GPL")
	signed := slices.Concat(plain, []byte("signature"), make([]byte, 8), []byte{0, 0, 0, 9}, []byte("~Module signature appended~\n"))
	require.Equal(t, plain, Unsigned(signed))
	require.Equal(t, plain, Unsigned(plain))
	signed[len(plain)+9+8] = 0xff // longer than the file
	require.Equal(t, signed, Unsigned(signed))
	require.Equal(t, signed[len(signed)-28:], Unsigned(signed[len(signed)-28:]))
}
