/*
 * Kconfig as a server: parses the Kconfig files once, and answers many times what `conf --olddefconfig` does.
 *
 * config-spec links this with the objects of the build's scripts/kconfig/conf, except conf.o. For each line on standard
 * input it reads and writes the file that KCONFIG_CONFIG names, as conf does, and prints a line: 0 on success. The
 * declarations are those of scripts/kconfig/lkc_proto.h and lkc.h.
 */
#include <stdio.h>
#include <unistd.h>

void conf_parse(const char *name);
int conf_read(const char *name);
int conf_write(const char *name);
/* Since Linux 6.12. */
__attribute__((weak)) _Bool sym_dep_errors(void);

int main(int argc, char *argv[])
{
	/* Kconfig prints messages to standard output. */
	int answers = dup(1);
	char line[16];

	if (argc < 2 || answers < 0 || dup2(2, 1) < 0)
		return 1;
	conf_parse(argv[1]);
	if (dprintf(answers, "0\n") < 0)
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		int failed = conf_read(NULL) || (sym_dep_errors && sym_dep_errors()) || conf_write(NULL);

		fflush(NULL);
		if (dprintf(answers, "%d\n", failed) < 0)
			return 1;
	}
	return 0;
}
