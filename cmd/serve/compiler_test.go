package serve

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// The status names what prevents machine code: umbra-jit that is absent at once, one that does not serve once it was tried.
func TestInterpreted(t *testing.T) {
	c := config.Default()
	require.Contains(t, interpreted(c, nil), "there is no umbra-jit beside umbra")
	c.Card.Compiler = config.CompilerOff
	require.Empty(t, interpreted(c, nil))

	compiler := jit.New(jit.Config{Program: "/bin/false", Always: true, Wait: true}, nil)
	defer compiler.Close()
	require.Empty(t, interpreted(c, &compiler.Stats))
	compiler.Of(0).Run(&engine.Job{Launch: new(sm.Launch), Grid: new(engine.Grid)})
	require.Contains(t, interpreted(c, &compiler.Stats), "/bin/false: exit status 1; install the umbra-jit of this release")
}
