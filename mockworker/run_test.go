package mockworker

import (
	"testing"

	"fleetdrill/internal/contract"
)

func TestServesAndTellsTheTruth(t *testing.T) {
	f := start(t, nil)
	if status, body := f.api("GET", "/health", ""); status != 200 || body != "" {
		t.Fatalf("health: %d %q", status, body)
	}
	f.complete(prompt(1, 40), 10, "")
	row := f.truth().Ranks[0]
	// 40 prompt + 10 output - 1 tokens are 3 full blocks of 16.
	if row.ResidentBlocks != 3 || row.AnnouncedBlocks != 3 || row.Unannounced != 0 || row.Ghost != 0 || row.Running != 0 {
		t.Errorf("truth after one completion: %+v", row)
	}
	var head contract.TruthBlocksHead
	blocks := jsonLines[contract.TruthBlock](f, "/admin/truth/blocks?set=announced", &head)
	if len(blocks) != 3 || head.Blocks != 3 || head.Digest != row.Digest || head.Seq != row.NextSeq-1 {
		t.Errorf("announced: head %+v, %d blocks", head, len(blocks))
	}
}
