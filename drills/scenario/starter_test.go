package scenario

import "testing"

func TestStarterParses(t *testing.T) {
	src, err := Starter("my-first")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("my-first.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "my-first" || len(s.Control) != 1 || len(s.Expect) < 3 {
		t.Errorf("%+v", s)
	}
}

func TestStarterRefusesNamesThatDoNotParse(t *testing.T) {
	for _, name := range []string{"", "3rd", "a b", "a.b", "a: b", "x\ny"} {
		if _, err := Starter(name); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
}
