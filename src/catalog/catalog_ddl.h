/* Texts of the projection's schema, one per dialect and step (catalog_ddl.c says what a step is).
 */
#ifndef SF_CATALOG_DDL_H
#define SF_CATALOG_DDL_H

#define SF_CATALOG_DDL_STEPS 7

extern const char *const sf_catalog_ddl_sqlite[SF_CATALOG_DDL_STEPS];
extern const char *const sf_catalog_ddl_postgres[SF_CATALOG_DDL_STEPS];
extern const char *const sf_catalog_ddl_mysql[SF_CATALOG_DDL_STEPS];

#endif
