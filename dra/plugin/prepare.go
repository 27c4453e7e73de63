package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/umbra-gpu/umbra/cmd/api"
)

// prepare makes the GPUs of a claim, or finds them made, and writes its CDI file last.
func (p *Plugin) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	gpus, err := p.gpusOf(claim)
	if err != nil {
		return nil, err
	}
	var out []kubeletplugin.Device
	for _, g := range gpus {
		if err := p.add(ctx, &g); err != nil {
			return nil, fmt.Errorf("card %s: %w", g.Card, err)
		}
		out = append(out, kubeletplugin.Device{
			Requests: []string{g.request}, PoolName: p.Node, DeviceName: g.Card, ShareID: g.share,
			CDIDeviceIDs: []string{cdiKind + "=" + g.Name},
		})
	}
	return out, p.writeCDI(claim.UID, gpus)
}

// add adds a GPU to its card, unless it is there.
func (p *Plugin) add(ctx context.Context, g *gpu) error {
	ctx, stop := context.WithTimeout(ctx, changePatience)
	defer stop()
	// The folder is root's: a server that was taken over cannot put a link in its place, which a container would
	// mount. It has the group of the folder of all, which keeps users of the host out: in containers anybody may connect.
	folder := filepath.Dir(g.Socket)
	if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(folder, 0o775); err != nil {
		return err
	}
	server := api.NewClient(p.Cards[g.Card])
	request := api.AddRequest{GPU: g.Options}
	_, err := server.Add(ctx, request)
	if !hasCode(err, http.StatusConflict) {
		return err
	}
	there, missing := server.Show(ctx, g.Name)
	if missing != nil {
		return err // a conflict with other GPUs
	}
	if _, gone := os.Stat(g.Socket); gone == nil && there.Socket == g.Socket {
		return nil
	}
	// Its socket lies elsewhere, or was removed: nobody can be attached who should.
	if _, err := server.Remove(ctx, g.Name, true); err != nil {
		return err
	}
	_, err = server.Add(ctx, request)
	return err
}

// unprepare removes all that a claim has here. Its file is the last: with it the rest is found again.
func (p *Plugin) unprepare(ctx context.Context, claim types.UID) error {
	if owner("dra-"+string(claim)+"-") != claim {
		return nil // nothing was prepared for what is no UID
	}
	cards := slices.Collect(maps.Keys(p.Cards))
	if prepared, err := preparedIn(p.cdiPath(string(claim))); err == nil { // servers of other cards may not answer
		cards = nil
		for _, g := range prepared {
			if _, known := p.Cards[g.Card]; known && !slices.Contains(cards, g.Card) {
				cards = append(cards, g.Card)
			}
		}
	}
	var errs []error
	for _, card := range cards { // all: one that does not answer keeps no GPU on another
		gpus, err := p.gpus(ctx, card)
		errs = append(errs, err)
		for _, g := range gpus {
			if owner(g.Name) != claim {
				continue
			}
			// The kubelet has seen the machine's end, the server perhaps not yet.
			if err := p.remove(ctx, card, g.Name); err != nil && !hasCode(err, http.StatusNotFound) && !p.ended(ctx, card) {
				errs = append(errs, fmt.Errorf("card %s: %w", card, err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	paths, err := p.paths(string(claim))
	for _, path := range paths {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// paths are the folders and then the files of a claim, or of all ("*").
func (p *Plugin) paths(claim string) (out []string, err error) {
	for _, pattern := range []string{filepath.Join(p.Sockets, "dra-"+claim+"-*"), p.cdiPath(claim) + "*"} {
		paths, bad := filepath.Glob(pattern)
		out, err = append(out, paths...), errors.Join(err, bad)
	}
	return out, err
}

// gpus lists the GPUs of a card. One whose server ended has none: they end with it.
func (p *Plugin) gpus(ctx context.Context, card string) ([]api.GPU, error) {
	s, err := p.status(ctx, card)
	if err != nil && !p.ended(ctx, card) {
		return nil, fmt.Errorf("card %s: %w", card, err)
	}
	return s.GPUs, nil
}

func (p *Plugin) remove(ctx context.Context, card, gpu string) error {
	ctx, stop := context.WithTimeout(ctx, changePatience)
	defer stop()
	_, err := api.NewClient(p.Cards[card]).Remove(ctx, gpu, true)
	return err
}

func (p *Plugin) status(ctx context.Context, card string) (api.Status, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	return api.NewClient(p.Cards[card]).Status(ctx)
}

// ended says whether no server listens at the card's control socket.
func (p *Plugin) ended(ctx context.Context, card string) bool {
	c, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "unix", p.Cards[card])
	if err == nil {
		c.Close()
	}
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

func hasCode(err error, code int) bool {
	e, is := errors.AsType[*api.Error](err)
	return is && e.Code == code
}
