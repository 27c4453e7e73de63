package testserver

import (
	"errors"
	"os"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/rm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/fakerm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
)

const (
	// EnvCard names the card of suites: "nvidia" is the first GPU of the host's driver, "fake" one of the same kind without a
	// GPU. Without it they have the software card.
	EnvCard = "UMBRA_TEST_CARD"
	// EnvUmbra names the umbra that is the process of a guest's channels on the card nvidia.
	EnvUmbra = "UMBRA_TEST_UMBRA"
)

// HostMap is what a guest can map of a GPU on such a card: the card's pages do not move into a window.
const HostMap = aperture.MapBAR3

// ErrSoft is the error of what only the software card has.
var ErrSoft = errors.New("only the software card has this")

// HostCard says whether the card is one of the host's driver.
func HostCard() bool {
	kind := os.Getenv(EnvCard)
	return kind == "nvidia" || kind == "fake"
}

// OpenHost opens a card of the host's driver.
func OpenHost() (card.GPU, error) {
	start := func(_ int, ev worker.Events) (*worker.Worker, error) {
		return worker.InProcess(&fakerm.Driver{VRAM: 128 << 30}, worker.Config{}, ev)
	}
	if os.Getenv(EnvCard) == "nvidia" {
		start = func(_ int, ev worker.Events) (*worker.Worker, error) {
			return worker.Start(worker.Config{Command: []string{os.Getenv(EnvUmbra), "card-worker"}}, ev)
		}
	}
	gpu, err := rm.Open(rm.Config{}, start)
	if err != nil {
		return nil, err
	}
	return gpu, nil
}

// shareHost shares one.
func shareHost(cfg SharedConfig, opts vfiouser.Options) (*serve.Shared, error) {
	if cfg.Plant != nil || cfg.Renamed || cfg.GPU != nil || cfg.Card.Watch != nil || cfg.Limits.Scheduler != nil {
		return nil, ErrSoft
	}
	gpu, err := OpenHost()
	if err != nil {
		return nil, err
	}
	return serve.ShareGPU(gpu, serve.Native, opts, cfg.Limits)
}

// hostGPU is a GPU as such a card can have it.
func hostGPU(cfg serve.GPUConfig) (serve.GPUConfig, error) {
	if _, is := cfg.Device.(serve.GH100); !is {
		return cfg, ErrSoft
	}
	cfg.Share.Map &= HostMap
	return cfg, nil
}
