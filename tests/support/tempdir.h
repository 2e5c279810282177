/* Folders for tests that need files. */
#ifndef SF_TESTS_SUPPORT_TEMPDIR_H
#define SF_TESTS_SUPPORT_TEMPDIR_H

#define SF_TEMPDIR_BYTES 128

/* Makes a fresh folder (under TMPDIR, else /tmp) and writes its path to out_path. */
void sf_tempdir_make(char out_path[SF_TEMPDIR_BYTES]);

/* Removes a folder with all that is in it. */
void sf_tempdir_remove(const char *path);

#endif
