-- One row a patient of the OMOP Common Data Model, the same text for PostgreSQL, DuckDB and SQLite.
-- Who: everybody without heart failure before 2020. What is predicted: heart failure in 2020. From: what was known before.
SELECT
    2020 - p.year_of_birth                    AS age,
    p.gender_concept_id                       AS sex,
    COALESCE(c.hypertension, 0)               AS hypertension,
    COALESCE(c.diabetes, 0)                   AS diabetes,
    COALESCE(c.fibrillation, 0)               AS fibrillation,
    COALESCE(c.copd, 0)                       AS copd,
    m.systolic, m.body_mass, m.hba1c, m.creatinine,
    COALESCE(o.heart_failure, 0)              AS heart_failure
FROM person AS p
LEFT JOIN (
    SELECT
        person_id,
        MAX(CASE condition_concept_id WHEN 320128 THEN 1 ELSE 0 END) AS hypertension,
        MAX(CASE condition_concept_id WHEN 201826 THEN 1 ELSE 0 END) AS diabetes,
        MAX(CASE condition_concept_id WHEN 313217 THEN 1 ELSE 0 END) AS fibrillation,
        MAX(CASE condition_concept_id WHEN 255573 THEN 1 ELSE 0 END) AS copd,
        MAX(CASE condition_concept_id WHEN 316139 THEN 1 ELSE 0 END) AS failed_before
    FROM condition_occurrence
    WHERE condition_start_date < '2020-01-01'
    GROUP BY person_id
) AS c ON c.person_id = p.person_id
LEFT JOIN (
    SELECT
        person_id,
        ROUND(AVG(CASE measurement_concept_id WHEN 3004249 THEN value_as_number END), 1) AS systolic,
        ROUND(AVG(CASE measurement_concept_id WHEN 3038553 THEN value_as_number END), 1) AS body_mass,
        ROUND(AVG(CASE measurement_concept_id WHEN 3004410 THEN value_as_number END), 1) AS hba1c,
        ROUND(AVG(CASE measurement_concept_id WHEN 3016723 THEN value_as_number END), 1) AS creatinine
    FROM measurement
    WHERE measurement_date >= '2019-01-01' AND measurement_date < '2020-01-01'
    GROUP BY person_id
) AS m ON m.person_id = p.person_id
LEFT JOIN (
    SELECT person_id, MAX(1) AS heart_failure
    FROM condition_occurrence
    WHERE condition_concept_id = 316139 AND condition_start_date >= '2020-01-01'
      AND condition_start_date < '2021-01-01'
    GROUP BY person_id
) AS o ON o.person_id = p.person_id
WHERE COALESCE(c.failed_before, 0) = 0
ORDER BY p.person_id
